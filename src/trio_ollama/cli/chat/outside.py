"""Writing a message in an editor of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trio_ollama.cli.client import ClientError

__all__ = ["edited"]

VARIABLES: Final = ("OLLAMA_EDITOR", "VISUAL", "EDITOR")
USUAL: Final = ("nano", "vim", "vi")


def edited(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text as the user leaves it in the editor that the environment names. Raises ClientError."""
    chosen = next(filter(None, (environment.get(name, "").strip() for name in VARIABLES)), "")
    try:
        command = shlex.split(chosen) or [next(filter(shutil.which, USUAL))]
    except (ValueError, StopIteration):
        raise ClientError(f"no editor: name one in {VARIABLES[0]}") from None
    descriptor, name = tempfile.mkstemp(suffix=".md", prefix="message-")
    file = Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8") as draft:
            draft.write(text)
        if status := subprocess.call([*command, name]):
            raise ClientError(f"{command[0]} ended with status {status}; the message is as it was")
        return file.read_text("utf-8", "replace").rstrip("\n")
    except OSError as error:
        raise ClientError(f"{command[0]}: {error.strerror}; name another editor in {VARIABLES[0]}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):  # some editors put another file in its place, or none
            file.unlink()
