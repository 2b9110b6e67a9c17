"""A conversation's next message: what native chat, native generate and OpenAI chat have in common."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from trio_ollama.runners.contract import RunnerRefusedError
from trio_ollama.scheduler import Lease
from trio_ollama.server.demand import demand
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.attachments import readable
from trio_ollama.server.inference.completion import (
    open_cut,
    open_prompt,
    text_of,
    tokenize,
    with_images,
    without_second_bos,
)
from trio_ollama.server.inference.events import Done
from trio_ollama.server.inference.generation import Clock, Generation, acquire, overflows
from trio_ollama.server.inference.messages import Message, drop_old_thinking
from trio_ollama.server.inference.modes import Think
from trio_ollama.server.inference.parsed import answer_to
from trio_ollama.server.inference.prompters import Prompter, prompter, render
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.lookup import Target
from trio_ollama.server.services import Services
from trio_ollama.templates import GoTemplate, Refused

__all__ = ["check_abilities", "check_template", "count_prompt", "load", "open_chat", "show_prompt"]

logger = logging.getLogger(__name__)


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
    """Refuse a model whose prompts nobody here can make. Raises `ApiError` 400."""
    if isinstance(target.mode, Refused):
        raise ApiError(400, f'model "{target.given}" {target.mode.reason}')


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
    lease, messages = await _lease(services, stack, wish, messages, clock)
    making = prompter(services, lease, wish)
    if wish.remember:
        clock.remember = partial(_context, lease, wish, making, messages)
    begin = _go_on if wish.context else _open
    return await begin(stack, lease, wish, making, messages, clock)


async def count_prompt(
    services: Services, stack: AsyncExitStack, wish: Wish, messages: Sequence[Message], clock: Clock
) -> int:
    """Tokens of the prompt that `messages` (already assembled) become; the model is loaded for it.

    Raises what describes itself as an HTTP status. An image counts as where a conversation is cut: how many tokens it
    really takes is known when it has been seen.
    """
    lease, messages = await _lease(services, stack, wish, messages, clock, slot=False)
    async with _loaded(lease, clock):
        return await prompter(services, lease, wish).tokens(messages)


async def show_prompt(
    services: Services, stack: AsyncExitStack, wish: Wish, messages: Sequence[Message], clock: Clock
) -> str:
    """The prompt that `messages` (already assembled) become, with `[img-N]` for images where this server makes it.

    The model is loaded for it, as it may be the runner who knows. Raises what describes itself as an HTTP status.
    """
    lease, messages = await _lease(services, stack, wish, messages, clock, slot=False)
    async with _loaded(lease, clock):
        return await _before(lease, wish) + await prompter(services, lease, wish).prompt(messages)


async def _lease(
    services: Services,
    stack: AsyncExitStack,
    wish: Wish,
    messages: Sequence[Message],
    clock: Clock,
    *,
    slot: bool = True,
) -> tuple[Lease, Sequence[Message]]:
    """A lease, and the messages as the model gets them. What is refused is refused before anything is loaded."""
    messages = await readable(services, wish.target, _remembered(wish, messages))
    mode = wish.target.mode
    if isinstance(mode, GoTemplate):
        with_places = await render(services, wish, mode, messages)
        with_images(with_places.text, with_places.images)
    wanted = demand(services, wish.target, wish.options, keep_alive=wish.keep_alive, shift=wish.shift, slot=slot)
    lease = await acquire(services, stack, wanted, clock)
    logger.debug(
        "%s: prompts are made by %s; can do %s",
        lease.model,
        "this server" if isinstance(mode, GoTemplate) else "its runner",
        ", ".join(sorted(wish.target.capabilities)),
    )
    return lease, messages


@asynccontextmanager
async def _loaded(lease: Lease, clock: Clock) -> AsyncGenerator[None, None]:
    """For short questions to a runner; the request was to load the model, as far as others are concerned."""
    try:
        yield
    except Exception as error:
        clock.watch.failed(error)
        raise
    lease.release()
    clock.watch.done(Done("load"))


async def _open(
    stack: AsyncExitStack, lease: Lease, wish: Wish, making: Prompter, messages: Sequence[Message], clock: Clock
) -> Generation:
    try:
        return await making.open(messages, stack, clock)
    except RunnerRefusedError as error:
        if not (wish.truncate and overflows(error)):
            raise
        refusal = error
    kept = await _fit(lease, making, messages)
    seen = any(message.images for message in kept)  # a prompt in which an image is cut in half cannot be made
    if wish.cut_prompt and not seen and await making.tokens(kept) >= lease.context:
        prompt = await making.prompt(kept)
        return await open_cut(stack, lease, wish, prompt, clock, answer_to(wish, prompt))
    if len(kept) == len(messages):
        raise refusal
    return await making.open(kept, stack, clock)


async def _go_on(
    stack: AsyncExitStack, lease: Lease, wish: Wish, making: Prompter, messages: Sequence[Message], clock: Clock
) -> Generation:
    """Start the answer to a prompt that goes on from the tokens of an earlier one."""
    prompt = await without_second_bos(lease, wish, await _before(lease, wish) + await making.prompt(messages))
    try:
        return await open_prompt(stack, lease, wish, prompt, clock, answer_to(wish, prompt))
    except RunnerRefusedError as error:
        if not (wish.truncate and overflows(error)):
            raise
    return await open_cut(stack, lease, wish, prompt, clock, answer_to(wish, prompt))


async def _before(lease: Lease, wish: Wish) -> str:
    return await text_of(lease, wish.context) if wish.context else ""


async def _context(
    lease: Lease, wish: Wish, making: Prompter, messages: Sequence[Message], answer: str
) -> tuple[int, ...]:
    """Tokens of the prompt and of the answer's text: what the next request may go on from."""
    prompt = await _before(lease, wish) + await making.prompt(messages)
    return tuple(await tokenize(lease, await without_second_bos(lease, wish, prompt) + answer))


def _remembered(wish: Wish, messages: Sequence[Message]) -> Sequence[Message]:
    """What the model may see of the conversation."""
    model = wish.target.model
    return drop_old_thinking(messages) if model.family == "qwen3" or model.name.model == "deepseek-r1" else messages


async def _fit(lease: Lease, making: Prompter, messages: Sequence[Message]) -> list[Message]:
    """The longest end of the conversation that fits the context, with every system message before it.

    The last message always stays. Only asked after the runner refused the whole: usual requests pay nothing.
    """

    def cut(dropped: int) -> list[Message]:
        return [message for message in messages[:dropped] if message.role.lower() == "system"] + [*messages[dropped:]]

    low, high = 1, max(len(messages) - 1, 1)
    while low < high:  # fewer messages never need more tokens: halving finds the first that fit
        middle = (low + high) // 2
        if await making.tokens(cut(middle)) < lease.context:
            high = middle
        else:
            low = middle + 1
    return cut(low) if len(messages) > 1 else list(messages)
