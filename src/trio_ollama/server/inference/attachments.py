"""Images and sounds that come with a message: what they are, whether the model can take them, and in which form.

All of it is settled before anything is scheduled: what would be refused in the end loads no model.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

import msgspec

from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.messages import Message, kind_of
from trio_ollama.server.lookup import Target
from trio_ollama.server.services import Services

__all__ = ["MOST_PIXELS", "SOUNDS", "readable"]

MOST_PIXELS: Final = 64_000_000
"""Of an image that we decode ourselves: some 200 MB while it lasts."""

SOUNDS: Final = frozenset(("wav", "mp3"))
UNKNOWN: Final = (
    "invalid image input: it is neither a PNG, JPEG, WebP, GIF or BMP image, nor a sound in a WAV or MP3 file"
)


async def readable(services: Services, target: Target, messages: Sequence[Message]) -> list[Message]:
    """The messages with attachments that the runner can decode.

    Raises `ApiError` 400: for what is neither image nor sound, is broken, or is more than this model has senses for.
    """
    kinds = {kind_of(data) for message in messages for data in message.images}
    if "" in kinds:
        raise ApiError(400, UNKNOWN)
    needed = {"audio" if kind in SOUNDS else "vision" for kind in kinds}
    if missing := sorted(needed - target.capabilities):
        # **DIFF**: upstream loads the model, whose runner then refuses with a 500.
        full = target.model.name.full
        raise ApiError(400, "\n".join(f"{full} does not support {ability}" for ability in missing))
    if "webp" not in kinds:
        return list(messages)
    return [await _without_webp(services, message) for message in messages]


async def _without_webp(services: Services, message: Message) -> Message:
    images = [await services.in_thread(_png, data) if kind_of(data) == "webp" else data for data in message.images]
    return msgspec.structs.replace(message, images=images)


def _png(data: bytes) -> bytes:
    """A WebP as PNG: llama.cpp decodes it only through another program, if there is one."""
    from PIL import Image  # here, because hardly anyone needs it

    try:
        with Image.open(io.BytesIO(data), formats=["WEBP"]) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ApiError(400, f"invalid image input: {image.width} x {image.height} pixels are too many")
            out = io.BytesIO()
            image.convert("RGB").save(out, "PNG", compress_level=1)
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise ApiError(400, f"invalid image input: {error}") from None
    return out.getvalue()
