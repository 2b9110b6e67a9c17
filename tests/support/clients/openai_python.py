"""Package `openai`, both of its clients."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the client's own loop, in its own process
import base64
from typing import Any

import openai
import pytest

from tests.support.clients.protocol import A_MOMENT, QUESTION, TOOL, leave_by_cancel, leave_by_timeout, left, run
from tests.support.pictures import PNG

ASKED: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
SHORT: dict[str, Any] = {**ASKED, "max_tokens": 6}
ENDLESS: dict[str, Any] = {**ASKED, "model": "endless", "max_tokens": 30_000}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PNG).decode()}}


async def everything(client: openai.AsyncOpenAI) -> None:
    create: Any = client.chat.completions.create
    whole = await create(**SHORT)
    (choice,) = whole.choices
    assert (choice.finish_reason, whole.usage.completion_tokens) == ("length", 6)
    chunks = [chunk async for chunk in await create(**SHORT, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == choice.message.content
    called: Any = await create(**{**ASKED, "model": "caller"}, tools=[TOOL])
    (call,) = called.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("add", '{"a":1,"b":2}')
    assert called.choices[0].finish_reason == "tool_calls"
    thought = await create(**{**ASKED, "model": "thinker"}, reasoning_effort="low")
    assert thought.choices[0].message.content == "yes."
    seen = [{"role": "user", "content": [{"type": "text", "text": QUESTION}, IMAGE]}]
    assert (await create(**{**SHORT, "model": "seer", "messages": seen})).choices[0].message.content
    text = await client.completions.create(model="tiny", prompt=QUESTION, max_tokens=6, temperature=0)
    assert text.choices[0].text
    vectors = await client.embeddings.create(model="embedder", input=["w1 w2", "w3"])
    assert [len(each.embedding) for each in vectors.data] == [64, 64]
    assert "tiny:latest" in [model.id async for model in client.models.list()]
    assert (await client.models.retrieve("tiny")).id == "tiny"
    answer = await client.responses.create(model="tiny", input=QUESTION, max_output_tokens=6, temperature=0)
    assert answer.output_text == choice.message.content
    with pytest.raises(openai.NotFoundError, match="not found"):
        await create(**{**ASKED, "model": "nobody"})
    several = await asyncio.gather(*(create(**SHORT) for _ in range(8)))
    assert {each.choices[0].message.content for each in several} == {choice.message.content}


def settings(url: str) -> dict[str, Any]:
    return {"base_url": f"{url}/v1", "api_key": "unused", "max_retries": 0}


def do(url: str) -> None:
    asyncio.run(everything(openai.AsyncOpenAI(**settings(url))))


def leave(url: str) -> None:
    client = openai.OpenAI(**settings(url))
    stream = client.chat.completions.create(**ENDLESS, stream=True)
    assert next(iter(stream))
    stream.close()
    left("closing the stream of the blocking client")
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=A_MOMENT).chat.completions.create(**ENDLESS)
    left("the timeout of the blocking client")


async def leave_asynchronously(url: str) -> None:
    client = openai.AsyncOpenAI(**settings(url))
    # It loads this part of itself when it is first used, and on a busy machine that takes longer than a moment.
    await client.responses.create(model="endless", input=QUESTION, max_output_tokens=1)

    async def pieces() -> Any:
        return await client.chat.completions.create(**ENDLESS, stream=True)

    await leave_by_cancel("cancelling the task", pieces)
    await leave_by_timeout("timeout", lambda: client.chat.completions.create(**ENDLESS))
    await leave_by_timeout(
        "timeout of a response",
        lambda: client.responses.create(model="endless", input=QUESTION, max_output_tokens=30_000),
    )
    async with await pieces() as stream:
        assert await anext(aiter(stream))
    await asyncio.to_thread(left, "closing the stream")


if __name__ == "__main__":
    run([do], [leave, lambda url: asyncio.run(leave_asynchronously(url))])
