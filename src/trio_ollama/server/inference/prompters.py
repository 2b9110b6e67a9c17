"""Two ways from a conversation to a prompt: the runner makes it by the weights' own template, or this server by a Go
template. Whoever asks does not see which."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final, Protocol

import msgspec

from trio_ollama.scheduler import Lease
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.completion import open_prompt, tokenize, with_images, without_second_bos
from trio_ollama.server.inference.generation import Clock, Generation
from trio_ollama.server.inference.messages import Message, to_runner
from trio_ollama.server.inference.modes import chat_format
from trio_ollama.server.inference.options import sampling
from trio_ollama.server.inference.parsed import answer_to
from trio_ollama.server.inference.translate import ChatTranslator
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.services import Services
from trio_ollama.templates import GoTemplate, Prompt, TemplateError, render_prompt
from trio_ollama.templates import Message as Turn
from trio_ollama.templates import ToolCall as Call

__all__ = ["Prompter", "RunnerPrompter", "TemplatePrompter", "infill", "prompter", "render", "turn"]

CHAT: Final = "/v1/chat/completions"
IMAGE_TOKENS: Final = 768
"""What an image counts when a conversation is cut to the context."""


class Prompter(Protocol):
    """Makes one request's prompts, under its lease."""

    async def prompt(self, messages: Sequence[Message]) -> str:
        """The finished prompt, with places for images but not the images."""

    async def open(self, messages: Sequence[Message], stack: AsyncExitStack, clock: Clock) -> Generation:
        """Start the answer."""

    async def tokens(self, messages: Sequence[Message]) -> int:
        """How long the prompt is, images by a rule of thumb."""


def prompter(services: Services, lease: Lease, wish: Wish) -> Prompter:
    """The one for this model, or for the template that the request brings."""
    mode = wish.target.mode
    return (
        TemplatePrompter(services, lease, wish, mode) if isinstance(mode, GoTemplate) else RunnerPrompter(lease, wish)
    )


class _Counting:
    def __init__(self, lease: Lease, wish: Wish) -> None:
        self._lease = lease
        self._wish = wish

    async def prompt(self, messages: Sequence[Message]) -> str:
        raise NotImplementedError

    async def tokens(self, messages: Sequence[Message]) -> int:
        prompt = await self.prompt(messages)
        return len(await tokenize(self._lease, prompt)) + IMAGE_TOKENS * sum(len(one.images) for one in messages)


class RunnerPrompter(_Counting):
    """By the template of the weights; the runner takes thoughts and tool calls out of the answer, too."""

    async def open(self, messages: Sequence[Message], stack: AsyncExitStack, clock: Clock) -> Generation:
        wish = self._wish
        body = {
            "messages": list(map(to_runner, messages)),
            **sampling(wish.options, self._lease.context),
            **chat_format(wish.format),
            **self._template_part(),
        }
        if wish.top_logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": max(wish.top_logprobs, 1)}
        return await Generation.open(stack, self._lease, clock, CHAT, body, ChatTranslator(**wish.switches))

    async def prompt(self, messages: Sequence[Message]) -> str:
        plain = [to_runner(msgspec.structs.replace(message, images=[])) for message in messages]
        answer = await self._lease.ask("/apply-template", {"messages": plain, **self._template_part()})
        prompt: str = answer["prompt"]
        return prompt

    def _template_part(self) -> dict[str, Any]:
        """What a template sees beside the messages."""
        part: dict[str, Any] = {"tools": self._wish.tools} if self._wish.tools else {}
        if self._wish.think is not None:
            part["chat_template_kwargs"] = _arguments(self._wish.think)
        return part


class TemplatePrompter(_Counting):
    """By a Go template; the answer is taken apart here."""

    def __init__(self, services: Services, lease: Lease, wish: Wish, mode: GoTemplate) -> None:
        super().__init__(lease, wish)
        self._services = services
        self._mode = mode

    async def open(self, messages: Sequence[Message], stack: AsyncExitStack, clock: Clock) -> Generation:
        prompt = await render(self._services, self._wish, self._mode, messages)
        text = await without_second_bos(self._lease, self._wish, prompt.text)
        whole = with_images(text, prompt.images)
        return await open_prompt(stack, self._lease, self._wish, whole, clock, answer_to(self._wish, text))

    async def prompt(self, messages: Sequence[Message]) -> str:
        rendered = await render(self._services, self._wish, self._mode, messages)
        return await without_second_bos(self._lease, self._wish, rendered.text)


async def render(
    services: Services,
    wish: Wish,
    mode: GoTemplate,
    messages: Sequence[Message] = (),
    *,
    before: str = "",
    after: str = "",
) -> Prompt:
    """The prompt for a conversation, or for text between `before` and `after`. Raises `ApiError` 400.

    In a thread: a template may compute for a second before its limits stop it.
    """

    def work() -> Prompt:
        turns = list(map(turn, messages))
        return render_prompt(mode.template, turns, tools=wish.tools, prompt=before, suffix=after, think=wish.think)

    try:
        return await services.in_thread(work)
    except TemplateError as error:
        raise ApiError(400, f'model "{wish.target.given}" has a template that cannot be rendered: {error}') from None


async def infill(services: Services, wish: Wish, before: str, after: str) -> str:
    """The prompt for text between two others. Raises `ApiError` 400, also if no template knows how."""
    template = wish.target.stored
    if template is None or "insert" not in template.capabilities:
        raise ApiError(400, f"{wish.target.model.name.full} does not support insert")
    return (await render(services, wish, template, before=before, after=after)).text


def turn(message: Message) -> Turn:
    """A message as templates see it."""
    calls = [
        Call(call.function.name, call.function.arguments, call.id, call.function.index) for call in message.tool_calls
    ]
    return Turn(
        message.role.lower(),
        message.content,
        message.thinking,
        tuple(message.images),
        tuple(calls),
        message.tool_name,
        message.tool_call_id,
    )


def _arguments(think: bool | str) -> dict[str, Any]:
    """What a Jinja template is told of `think`."""
    arguments: dict[str, Any] = {"enable_thinking": bool(think)}
    if isinstance(think, str):
        arguments["reasoning_effort"] = think
    return arguments
