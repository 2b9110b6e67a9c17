"""Package `llama-index-llms-ollama`."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the client's own loop, in its own process
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.ollama import Ollama

from tests.support.clients.protocol import QUESTION, leave_by_cancel, leave_by_timeout, left, run
from tests.support.pictures import PNG

ASKED = [ChatMessage(role="user", content=QUESTION)]


def made(url: str, model: str, tokens: int) -> Any:
    options = {"num_predict": tokens}
    return Ollama(base_url=url, model=model, temperature=0, additional_kwargs=options, request_timeout=60)


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def do(url: str) -> None:
    tiny = made(url, "tiny", 6)
    whole = tiny.chat(ASKED)
    assert whole.message.content
    assert whole.raw["eval_count"] == 6
    *_, last = tiny.stream_chat(ASKED)
    assert last.message.content == whole.message.content
    assert tiny.complete(QUESTION).text == whole.message.content
    caller = made(url, "caller", 60)
    answer = caller.chat_with_tools([FunctionTool.from_defaults(add)], user_msg=QUESTION)
    (call,) = caller.get_tool_calls_from_response(answer)
    assert (call.tool_name, call.tool_kwargs) == ("add", {"a": 1, "b": 2})
    seen = ChatMessage(role="user", blocks=[TextBlock(text=QUESTION), ImageBlock(image=PNG)])
    assert made(url, "seer", 6).chat([seen]).message.content != whole.message.content
    assert asyncio.run(made(url, "tiny", 6).achat(ASKED)).message.content == whole.message.content


def leave(url: str) -> None:
    stream = made(url, "endless", 30_000).stream_chat(ASKED)
    assert next(stream)
    stream.close()
    left("closing the stream of the blocking client")


async def leave_asynchronously(url: str) -> None:
    endless = made(url, "endless", 30_000)
    await leave_by_cancel("cancelling the task", lambda: endless.astream_chat(ASKED))
    await leave_by_timeout("timeout", lambda: endless.achat(ASKED))


if __name__ == "__main__":
    run([do], [leave, lambda url: asyncio.run(leave_asynchronously(url))])
