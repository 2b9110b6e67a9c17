"""POST /api/pull, POST /api/push: models from and to a registry.

The first line is told before anything can go wrong, so errors are lines of a stream that began with status 200; the
name alone is judged before.
"""

from __future__ import annotations

import msgspec
from quart import Response

from trio_ollama.models.names import ModelName
from trio_ollama.registry import Reference, Transfer
from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import describe
from trio_ollama.server.lookup import WORDS, parse_name
from trio_ollama.server.native.encode import error_line
from trio_ollama.server.replies import encode, json_reply, read
from trio_ollama.server.services import Services, services
from trio_ollama.server.streaming import NDJSON, stream_response

__all__ = ["TransferLines", "TransferRequest", "begin_pull", "pull", "push"]


class TransferRequest(msgspec.Struct):
    """The body of both; `name` is the old word for `model`. User names and passwords are Ollama's past."""

    model: str = ""
    name: str = ""
    insecure: bool = False
    stream: bool = True

    @property
    def given(self) -> str:
        return self.model or self.name


async def pull() -> Response:
    """Fetch a model from its registry, and tell every step."""
    at = services()
    body = await read(TransferRequest, at.settings.max_body)
    return await _answer(begin_pull(at, parse_name(body.given, WORDS["pull"]), insecure=body.insecure), body.stream)


async def push() -> Response:
    """Bring a model to its registry, and tell every step."""
    at = services()
    body = await read(TransferRequest, at.settings.max_body)
    transfer = at.registry.push(Reference(parse_name(body.given, WORDS["push"]), body.insecure))
    request_stack().callback(transfer.cancel)
    return await _answer(transfer, body.stream)


def begin_pull(at: Services, name: ModelName, *, insecure: bool = False) -> Transfer:
    """Begin to pull a model for the current request, and end that with it, however it ends.

    Whoever calls this reads `news` until that is empty, or raises.
    """
    transfer = at.registry.pull(Reference(name, insecure))
    request_stack().callback(transfer.cancel)
    return transfer


async def _answer(transfer: Transfer, stream: bool) -> Response:
    if stream:
        return await stream_response(TransferLines(transfer), NDJSON)
    last = None
    while news := await transfer.news():
        last = news[-1]
    return json_reply(last)


class TransferLines:
    """The news of a transfer as NDJSON; its error is the last line."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer
        self._failed = False

    async def receive(self) -> bytes:
        """All that happened since the last time."""
        if self._failed:
            return b""
        try:
            news = await self._transfer.news()
        except Exception as error:
            self._failed = True
            return error_line(describe(error)[1])
        return b"".join([encode(progress) + b"\n" for progress in news])

    def close(self) -> None:
        """Nobody reads any more."""
        self._transfer.cancel()
