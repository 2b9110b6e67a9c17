"""POST /api/create: a model out of uploaded files, or out of another model."""

from __future__ import annotations

from collections.abc import Generator

import msgspec
from quart import Response

from trio_ollama.models.create import CreateRequest, Progress
from trio_ollama.models.create import create as steps_of
from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import describe
from trio_ollama.server.lookup import WORDS, parse_name
from trio_ollama.server.native.encode import error_line
from trio_ollama.server.replies import encode, json_reply, read
from trio_ollama.server.services import Services, services
from trio_ollama.server.streaming import NDJSON, stream_response

__all__ = ["CreateBody", "create"]


class CreateBody(CreateRequest, frozen=True, kw_only=True, rename={"source": "from"}):
    """The body, with the old words for two of its fields."""

    name: str = ""
    quantization: str = ""
    stream: bool = True


async def create() -> Response:
    """Make the model, and tell every step."""
    at = services()
    body = await read(CreateBody, at.settings.max_body)
    body = msgspec.structs.replace(body, model=body.model or body.name, quantize=body.quantize or body.quantization)
    parse_name(body.model, WORDS["create"])
    steps = steps_of(at.store, body, prune=not at.settings.noprune)
    if body.stream:
        return await stream_response(Steps(at, steps), NDJSON)
    request_stack().callback(steps.close)
    last = None
    while (step := await at.in_thread(next, steps, None)) is not None:
        last = step
    return json_reply(last)


class Steps:
    """The steps as NDJSON. Each is worked in a thread; between them the client may leave, and no model is made."""

    def __init__(self, at: Services, steps: Generator[Progress, None, None]) -> None:
        self._at = at
        self._steps = steps
        self._begun = False
        self._failed = False

    async def receive(self) -> bytes:
        """The next step, the error that ended them, or nothing. The first error is raised: it has a status yet."""
        if self._failed:
            return b""
        try:
            step = await self._at.in_thread(next, self._steps, None)
        except Exception as error:
            if not self._begun:
                raise
            self._failed = True
            return error_line(describe(error)[1])
        self._begun = True
        return encode(step) + b"\n" if step is not None else b""

    def close(self) -> None:
        """Abandoned steps have made no model; what they were writing goes now."""
        self._steps.close()
