"""Reading a request's body whole, under a limit."""

from __future__ import annotations

import trio
from quart import Request

from .compressed import PIECE, BrokenBodyError, unpacker

__all__ = ["BodyError", "BodyTooLargeError", "EmptyBodyError", "read_body", "read_json"]


class BodyError(Exception):
    """The request's body cannot be used. `status` is the HTTP status, the text is fit for a client."""

    status = 400


class EmptyBodyError(BodyError):
    """There is no body where one is needed."""

    def __init__(self) -> None:
        super().__init__("missing request body")


class BodyTooLargeError(BodyError):
    """The body is larger than the limit (bytes)."""

    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__(f"request body too large: the limit is {limit} bytes")
        self.limit = limit


async def read_body(request: Request, limit: int) -> bytes:
    """All of the body, at most `limit` bytes; never holds more than that and one piece of the connection's.

    What comes compressed has the same limit when it is unpacked. Raises `BodyTooLargeError`: at once if the client
    declares a larger body, else as soon as the limit is passed. The rest is then not read; the connection ends after
    the response. Raises `BodyError` if it cannot be unpacked.
    """
    declared = request.content_length
    if declared is not None and declared > limit:
        raise BodyTooLargeError(limit)
    data, packed = bytearray(), unpacker(request.headers.get("Content-Encoding", ""))
    try:
        async for chunk in request.body:
            for piece in packed.pieces(chunk):
                if len(data) + len(piece) > limit:
                    raise BodyTooLargeError(limit)
                data += piece
                if len(piece) == PIECE:
                    await trio.lowlevel.checkpoint()  # a little may become much: others have their turn meanwhile
        packed.end()
    except BrokenBodyError:
        raise BodyError("failed to decompress request body") from None
    return bytes(data)


async def read_json(request: Request, limit: int) -> bytes:
    """The text of a JSON body, whatever its content type. Raises `EmptyBodyError` and `BodyTooLargeError`."""
    data = await read_body(request, limit)
    if not data:
        raise EmptyBodyError
    return data
