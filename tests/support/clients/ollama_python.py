"""Package `ollama`, both of its clients."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the client's own loop, in its own process
import math
from typing import Any

import httpx  # noqa: ASYNC127 - what the client raises
import ollama
import pytest

from tests.support.clients.protocol import (
    A_MOMENT,
    ENDLESS,
    QUESTION,
    SHORT,
    TOOL,
    leave_by_cancel,
    leave_by_timeout,
    left,
    run,
)
from tests.support.pictures import PNG, picture

ASKED: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}


def synchronous(url: str) -> None:
    client = ollama.Client(url)
    answer = client.chat("thinker", ASKED, think=True)
    assert answer.message.thinking is not None
    assert (answer.message.thinking.strip(), answer.message.content) == ("hm so", "yes.")
    answer = client.chat("caller", ASKED, tools=[TOOL])
    check_call(answer)
    history: list[Any] = [*ASKED, answer.message, {"role": "tool", "tool_name": "add", "content": "3"}]
    check_call(client.chat("caller", history, tools=[TOOL]))

    def add(a: int, b: int) -> int:
        """The sum.

        Args:
            a: one number
            b: the other
        """
        return a + b

    check_call(client.chat("caller", ASKED, tools=[add]))  # the client makes the schema of the function itself
    red, blue = (
        client.generate("seer", QUESTION, images=[image], options=SHORT).response
        for image in (PNG, picture((0, 0, 255)))
    )
    assert red != blue


def check_call(answer: ollama.ChatResponse) -> None:
    (call,) = answer.message.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("add", {"a": 1, "b": 2})


async def everything(client: ollama.AsyncClient) -> None:
    whole = await client.chat("tiny", ASKED, options=SHORT)
    assert (whole.done_reason, whole.eval_count) == ("length", 6)
    parts = [part async for part in await client.chat("tiny", ASKED, options=SHORT, stream=True)]
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    text = await client.generate("tiny", QUESTION, options=SHORT)
    pieces = [part.response or "" async for part in await client.generate("tiny", QUESTION, options=SHORT, stream=True)]
    assert "".join(pieces) == text.response
    streamed = [part async for part in await client.chat("caller", ASKED, tools=[TOOL], stream=True)]
    (with_call,) = [part for part in streamed if part.message.tool_calls]
    check_call(with_call)
    formed = await client.chat("tiny", ASKED, format=SCHEMA, options={"num_predict": 60, "seed": 1})
    assert (formed.message.content or "").startswith("{")
    vectors = await client.embed("embedder", ["w1 w2", "w3"])
    assert [round(math.hypot(*vector), 3) for vector in vectors.embeddings] == [1, 1]
    assert len((await client.embeddings("embedder", "w1")).embedding) == len(vectors.embeddings[0])
    seen = [{**ASKED[0], "images": [PNG]}]
    assert (await client.chat("seer", seen, options=SHORT)).message.content != whole.message.content

    names = {model.model for model in (await client.list()).models}
    assert {"tiny:latest", "caller:latest"} <= names
    assert (await client.show("caller")).capabilities == ["completion", "tools", "thinking"]
    assert "seer:latest" in {model.model for model in (await client.ps()).models}
    made = [step.status async for step in await client.create("made", from_="tiny", system="w9", stream=True)]
    assert made[-1] == "success"
    await client.copy("made", "copy")
    assert (await client.generate("copy", QUESTION, options=SHORT)).eval_count == 6
    for name in ("made", "copy"):
        assert (await client.delete(name)).status == "success"
    with pytest.raises(ollama.ResponseError, match="not found"):
        await client.chat("copy", ASKED)
    # Many at once: none gets another's answer.
    several = await asyncio.gather(*(client.chat("tiny", ASKED, options=SHORT) for _ in range(8)))
    assert {each.message.content for each in several} == {whole.message.content}


def asynchronous(url: str) -> None:
    asyncio.run(everything(ollama.AsyncClient(url)))


def leave(url: str) -> None:
    client = ollama.Client(url)
    stream: Any = client.chat("endless", ASKED, options=ENDLESS, stream=True)
    next(stream)
    stream.close()
    left("closing the stream of the blocking client")
    with pytest.raises(httpx.ReadTimeout):
        ollama.Client(url, timeout=A_MOMENT).generate("endless", QUESTION, options=ENDLESS)
    left("the timeout of the blocking client")


async def leave_asynchronously(url: str) -> None:
    client = ollama.AsyncClient(url)

    async def pieces() -> Any:
        return await client.chat("endless", ASKED, options=ENDLESS, stream=True)

    await leave_by_cancel("cancelling the task", pieces)
    await leave_by_timeout("timeout", lambda: client.generate("endless", QUESTION, options=ENDLESS))
    stream = await pieces()
    assert await anext(stream)
    await stream.aclose()
    await asyncio.to_thread(left, "closing the stream")


if __name__ == "__main__":
    run([synchronous, asynchronous], [leave, lambda url: asyncio.run(leave_asynchronously(url))])
