"""Small pictures of one colour each, in the formats that clients send."""

from __future__ import annotations

import io
from typing import Final

from PIL import Image

__all__ = ["JPEG", "PNG", "RED", "WEBP", "picture"]

RED: Final = (255, 0, 0)


def picture(colour: tuple[int, int, int], form: str = "PNG", *, side: int = 8) -> bytes:
    """A square; `form` is PNG, JPEG or WEBP, `side` in pixels."""
    data = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(data, form)
    return data.getvalue()


PNG: Final = picture(RED)
JPEG: Final = picture(RED, "JPEG")
WEBP: Final = picture(RED, "WEBP")
