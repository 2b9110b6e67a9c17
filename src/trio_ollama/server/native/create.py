"""POST /api/create: a model out of uploaded files, or out of another model, which is pulled if it is not there."""

from __future__ import annotations

from collections import deque

import msgspec
from quart import Response

from trio_ollama.models.create import SUCCESS, CreateRequest, Progress
from trio_ollama.models.create import create as steps_of
from trio_ollama.models.errors import ModelNotFoundError
from trio_ollama.models.names import Source, split_source
from trio_ollama.registry import Transfer
from trio_ollama.server.asgi import request_stack
from trio_ollama.server.errors import describe
from trio_ollama.server.lookup import WORDS, parse_name
from trio_ollama.server.native.encode import error_line
from trio_ollama.server.native.transfers import begin_pull
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
    steps = Steps(at, body)
    if body.stream:
        return await stream_response(StepLines(steps), NDJSON)
    request_stack().callback(steps.close)
    last = None
    while (step := await steps.next()) is not None:
        last = step
    return json_reply(last)


class Steps:
    """The steps of one request. Each is worked in a thread; between them the client may leave, and no model is made.

    A request that lacks nothing but the model it begins with has that pulled first, and then begins again.
    """

    def __init__(self, at: Services, body: CreateBody) -> None:
        self._at = at
        self._body = body
        self._steps = steps_of(at.store, body, prune=not at.settings.noprune)
        self._pull: Transfer | None = None
        self._news: deque[Progress] = deque()

    async def next(self) -> Progress | None:
        """The next step; None after the last. Raises what ended them, a pull's error, too: no model is made then."""
        try:
            if self._pull is None:
                return await self._step()
        except ModelNotFoundError:
            if split_source(self._body.source)[1] is Source.LOCAL:
                raise
            self._pull = begin_pull(self._at, parse_name(self._body.source, WORDS["pull"]))
            self._steps = steps_of(self._at.store, self._body, prune=not self._at.settings.noprune)
        if not self._news:
            # The pull's own last word is not the answer's.
            self._news.extend(news for news in await self._pull.news() if news.status != SUCCESS)
        return self._news.popleft() if self._news else await self._step()

    async def _step(self) -> Progress | None:
        return await self._at.in_thread(next, self._steps, None)

    def close(self) -> None:
        """Abandoned steps have made no model; what they were writing goes now."""
        self._steps.close()


class StepLines:
    """The steps as NDJSON."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._begun = False
        self._failed = False

    async def receive(self) -> bytes:
        """The next step, the error that ended them, or nothing. The first error is raised: it has a status yet."""
        if self._failed:
            return b""
        try:
            step = await self._steps.next()
        except Exception as error:
            if not self._begun:
                raise
            self._failed = True
            return error_line(describe(error)[1])
        self._begun = True
        return encode(step) + b"\n" if step is not None else b""

    def close(self) -> None:
        """Nobody reads any more."""
        self._steps.close()
