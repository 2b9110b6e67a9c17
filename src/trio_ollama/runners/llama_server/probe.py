"""Runs in a child process of its own: print the devices of the installed build of `xllamacpp`, as one line of JSON.

Run by path like `child.py`, so that nothing of the package is imported. The library may write whatever it likes
beside it; the line is known by its mark.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["MARK", "main"]

MARK = "trio-ollama devices: "


def main() -> None:
    """Raises whatever the library does: the traceback is on stderr, and the status is 1."""
    import xllamacpp

    print(MARK + json.dumps([plain(device) for device in xllamacpp.get_device_info()]), flush=True)


def plain(device: dict[str, Any]) -> dict[str, Any]:
    """The values that JSON has; an enum by the name of its member."""
    kept = {name: device.get(name) for name in ("name", "description", "memory_free", "memory_total", "device_id")}
    return kept | {"type": getattr(device.get("type"), "name", str(device.get("type")))}


if __name__ == "__main__":
    main()
