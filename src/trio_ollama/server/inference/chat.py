"""A conversation's next message: what native chat, native generate and OpenAI chat have in common."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from trio_ollama.models.capabilities import uses_jinja
from trio_ollama.runners.contract import RunnerRefusedError
from trio_ollama.scheduler import Lease
from trio_ollama.server.demand import demand
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.attachments import readable
from trio_ollama.server.inference.completion import open_cut, tokenize
from trio_ollama.server.inference.events import Done
from trio_ollama.server.inference.generation import Clock, Generation, acquire, overflows
from trio_ollama.server.inference.messages import Message, drop_old_thinking, to_runner
from trio_ollama.server.inference.modes import Think, chat_format
from trio_ollama.server.inference.options import sampling
from trio_ollama.server.inference.translate import ChatTranslator
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.lookup import Target
from trio_ollama.server.services import Services

__all__ = ["check_abilities", "check_template", "count_prompt", "load", "open_chat"]

logger = logging.getLogger(__name__)

CHAT: Final = "/v1/chat/completions"
IMAGE_TOKENS: Final = 768
"""What an image counts when a conversation is cut to the context."""


def check_abilities(target: Target, route: str, *needed: str, think: Think = None) -> Think:
    """Refuse what the model cannot do; returns `think` with the model's default filled in. Raises `ApiError` 400.

    `route` is `chat` or `generate`. A model that can think does so unless told otherwise.
    """
    able = target.capabilities
    if route == "generate" and "image" in able:
        raise ApiError(400, "image generation models are not currently supported")
    if "thinking" not in able and think not in (None, False):
        text = f'"{target.given}" does not support thinking'
        if target.model.family == "qwen3" or target.model.name.model == "deepseek-r1":
            text += ". Pull the model again to get the latest version with full thinking support"
        raise ApiError(400, text)
    if "completion" not in able or "image" in able:
        raise ApiError(400, f'"{target.given}" does not support {route}')
    missing = [ability for ability in needed if ability not in able]
    if missing:
        full = target.model.name.full
        raise ApiError(400, "\n".join(f"{full} does not support {ability}" for ability in missing))
    return True if think is None and "thinking" in able else think


def check_template(target: Target) -> None:
    """Refuse a model whose prompts only a Go template or a built-in renderer could make. Raises `ApiError` 400."""
    if not uses_jinja(target.model, target.metadata):
        raise ApiError(400, f'model "{target.given}" has no chat template this server can apply yet')


async def load(services: Services, stack: AsyncExitStack, wish: Wish, clock: Clock) -> None:
    """Have the model loaded, and nothing more."""
    wanted = demand(services, wish.target, wish.options, keep_alive=wish.keep_alive, shift=wish.shift, slot=False)
    lease = await acquire(services, stack, wanted, clock)
    lease.release()
    clock.watch.done(Done("load"))


async def open_chat(
    services: Services, stack: AsyncExitStack, wish: Wish, messages: Sequence[Message], clock: Clock
) -> Generation:
    """Start the answer to `messages` (already assembled). Raises what describes itself as an HTTP status."""
    target = wish.target
    messages = await readable(services, target, _remembered(wish, messages))
    wanted = demand(services, target, wish.options, keep_alive=wish.keep_alive, shift=wish.shift)
    lease = await acquire(services, stack, wanted, clock)
    logger.debug("%s: prompt by the model file's own template; can do %s", lease.model, ", ".join(target.capabilities))
    body = chat_body(wish, messages, lease.context)
    translator = ChatTranslator(**wish.switches)
    try:
        return await Generation.open(stack, lease, clock, CHAT, body, translator)
    except RunnerRefusedError as error:
        if not (wish.truncate and overflows(error)):
            raise
        refusal = error
    kept = await _fit(lease, body, messages)
    seen = any(message.images for message in kept)  # a prompt in which an image is cut in half cannot be made
    if wish.cut_prompt and not seen and await _tokens(lease, kept, _template_part(body)) >= lease.context:
        prompt = await _render(lease, kept, _template_part(body))
        return await open_cut(stack, lease, wish, prompt, clock)
    if len(kept) == len(messages):
        raise refusal
    body["messages"] = list(map(to_runner, kept))
    return await Generation.open(stack, lease, clock, CHAT, body, translator)


async def count_prompt(
    services: Services, stack: AsyncExitStack, wish: Wish, messages: Sequence[Message], clock: Clock
) -> int:
    """Tokens of the prompt that `messages` (already assembled) become; the model is loaded for it.

    Raises what describes itself as an HTTP status. An image counts as where a conversation is cut: how many tokens it
    really takes is known when it has been seen.
    """
    messages = await readable(services, wish.target, _remembered(wish, messages))
    wanted = demand(services, wish.target, wish.options, keep_alive=wish.keep_alive, shift=wish.shift, slot=False)
    lease = await acquire(services, stack, wanted, clock)
    try:
        count = await _tokens(lease, messages, _template_part(chat_body(wish, messages, lease.context)))
    except Exception as error:
        clock.watch.failed(error)
        raise
    lease.release()
    clock.watch.done(Done("load"))
    return count


def _remembered(wish: Wish, messages: Sequence[Message]) -> Sequence[Message]:
    """What the model may see of the conversation."""
    model = wish.target.model
    return drop_old_thinking(messages) if model.family == "qwen3" or model.name.model == "deepseek-r1" else messages


def chat_body(wish: Wish, messages: Sequence[Message], context: int) -> dict[str, Any]:
    """The runner call for a conversation."""
    body = {"messages": list(map(to_runner, messages)), **sampling(wish.options, context), **chat_format(wish.format)}
    if wish.tools:
        body["tools"] = wish.tools
    if wish.top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": max(wish.top_logprobs, 1)}
    if wish.think is not None:
        body["chat_template_kwargs"] = template_arguments(wish.think)
    return body


def template_arguments(think: bool | str) -> dict[str, Any]:
    """What a Jinja template is told of `think`."""
    arguments: dict[str, Any] = {"enable_thinking": bool(think)}
    if isinstance(think, str):
        arguments["reasoning_effort"] = think
    return arguments


async def _fit(lease: Lease, body: Mapping[str, Any], messages: Sequence[Message]) -> list[Message]:
    """The longest end of the conversation that fits the context, with every system message before it.

    The last message always stays. Only asked after the runner refused the whole: usual requests pay nothing.
    """
    rest = _template_part(body)

    def cut(dropped: int) -> list[Message]:
        return [message for message in messages[:dropped] if message.role.lower() == "system"] + [*messages[dropped:]]

    low, high = 1, max(len(messages) - 1, 1)
    while low < high:  # fewer messages never need more tokens: halving finds the first that fit
        middle = (low + high) // 2
        if await _tokens(lease, cut(middle), rest) < lease.context:
            high = middle
        else:
            low = middle + 1
    return cut(low) if len(messages) > 1 else list(messages)


def _template_part(body: Mapping[str, Any]) -> dict[str, Any]:
    """What else a template sees beside the messages."""
    return {name: body[name] for name in ("tools", "chat_template_kwargs") if name in body}


async def _tokens(lease: Lease, messages: Sequence[Message], rest: Mapping[str, Any]) -> int:
    prompt = await _render(lease, messages, rest)
    return len(await tokenize(lease, prompt)) + IMAGE_TOKENS * sum(len(message.images) for message in messages)


async def _render(lease: Lease, messages: Sequence[Message], rest: Mapping[str, Any]) -> str:
    """The prompt the template makes, without images."""
    plain = [to_runner(msgspec.structs.replace(message, images=[])) for message in messages]
    prompt: str = (await lease.ask("/apply-template", {"messages": plain, **rest}))["prompt"]
    return prompt
