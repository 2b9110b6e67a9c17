"""Package `langchain-ollama`."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the client's own loop, in its own process
import base64
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM

from tests.support.clients.protocol import QUESTION, TOOL, leave_by_cancel, leave_by_timeout, left, run
from tests.support.pictures import PNG


def chat(url: str, model: str, tokens: int) -> Any:
    return ChatOllama(base_url=url, model=model, num_predict=tokens, temperature=0)


def do(url: str) -> None:
    tiny = chat(url, "tiny", 6)
    whole = tiny.invoke(QUESTION)
    assert whole.content
    assert whole.usage_metadata["output_tokens"] == 6
    assert whole.response_metadata["done_reason"] == "length"
    assert "".join(chunk.content for chunk in tiny.stream(QUESTION)) == whole.content
    caller = chat(url, "caller", 60).bind_tools([TOOL])
    called = caller.invoke(QUESTION)
    (call,) = called.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 1, "b": 2})
    history = [HumanMessage(QUESTION), called, ToolMessage("3", tool_call_id=call["id"])]
    assert isinstance(caller.invoke(history), AIMessage)
    thinker = ChatOllama(base_url=url, model="thinker", reasoning=True)
    thought = thinker.invoke(QUESTION)
    assert (thought.content, thought.additional_kwargs["reasoning_content"].strip()) == ("yes.", "hm so")
    image = {"type": "image_url", "image_url": "data:image/png;base64," + base64.b64encode(PNG).decode()}
    seen = [HumanMessage([{"type": "text", "text": QUESTION}, image])]
    assert chat(url, "seer", 6).invoke(seen).content != whole.content
    vectors = OllamaEmbeddings(base_url=url, model="embedder").embed_documents(["w1 w2", "w3"])
    assert [len(vector) for vector in vectors] == [64, 64]
    assert OllamaLLM(base_url=url, model="tiny", num_predict=6, temperature=0).invoke(QUESTION)
    assert asyncio.run(tiny.ainvoke(QUESTION)).content == whole.content


def leave(url: str) -> None:
    stream = chat(url, "endless", 30_000).stream(QUESTION)
    assert next(stream)
    stream.close()
    left("closing the stream of the blocking client")


async def leave_asynchronously(url: str) -> None:
    endless = chat(url, "endless", 30_000)

    async def pieces() -> Any:
        return endless.astream(QUESTION)

    await leave_by_cancel("cancelling the task", pieces)
    await leave_by_timeout("timeout", lambda: endless.ainvoke(QUESTION))


if __name__ == "__main__":
    run([do], [leave, lambda url: asyncio.run(leave_asynchronously(url))])
