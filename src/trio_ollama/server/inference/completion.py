"""A raw prompt's continuation: no template, no parsing of thoughts or tools. `[img-N]` is where image N belongs."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from trio_ollama.runners.contract import MEDIA_MARKER, RunnerRefusedError
from trio_ollama.scheduler import Lease
from trio_ollama.server.demand import context_shift, demand
from trio_ollama.server.errors import ApiError
from trio_ollama.server.inference.attachments import readable
from trio_ollama.server.inference.generation import Clock, Generation, acquire, overflows
from trio_ollama.server.inference.messages import Message
from trio_ollama.server.inference.modes import completion_format
from trio_ollama.server.inference.options import sampling
from trio_ollama.server.inference.translate import CompletionTranslator
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.services import Services

__all__ = ["keep_ends", "open_completion", "open_cut", "tokenize"]

COMPLETION: Final = "/completion"
_PLACE: Final = re.compile(r"\[img-(\d{1,4})\]")

TOO_LONG: Final = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)


async def open_completion(
    services: Services, stack: AsyncExitStack, wish: Wish, prompt: str, clock: Clock, images: Sequence[bytes] = ()
) -> Generation:
    """Start the continuation of `prompt`. An over-long one is cut, if it has no images, and if the request and its
    context shift allow. Raises `ApiError` 400 for images without their place in it, or places without their image.
    """
    (message,) = await readable(services, wish.target, [Message(images=list(images))])
    whole = _with_images(prompt, message.images)
    wanted = demand(services, wish.target, wish.options, keep_alive=wish.keep_alive, shift=wish.shift)
    lease = await acquire(services, stack, wanted, clock)
    try:
        return await _open(stack, lease, wish, whole, clock)
    except RunnerRefusedError as error:
        if images or not (wish.truncate and overflows(error)):
            raise
    return await open_cut(stack, lease, wish, prompt, clock)


async def open_cut(stack: AsyncExitStack, lease: Lease, wish: Wish, prompt: str, clock: Clock) -> Generation:
    """Start the continuation of a prompt that is too long, with its middle left out.

    Raises `ApiError` 400 where the context is not shifted either: then nothing may be forgotten.
    """
    if not context_shift(wish.target, wish.shift):
        raise ApiError(400, TOO_LONG)
    tokens = await tokenize(lease, prompt)
    return await _open(stack, lease, wish, keep_ends(tokens, lease.context, wish.options["num_keep"]), clock)


def _with_images(prompt: str, images: Sequence[bytes]) -> str | dict[str, Any]:
    """What the runner takes for a prompt."""
    if not images:
        return prompt
    places = [int(number) for number in _PLACE.findall(prompt)]
    if sorted(set(places)) != list(range(len(images))):
        raise ApiError(400, f"the prompt must say where each of its {len(images)} images belongs, as [img-0] and so on")
    marked = _PLACE.sub(MEDIA_MARKER, prompt)
    if marked.endswith(MEDIA_MARKER):
        # Such a prompt, sent after a chat with the same image, aborts the runner, and with it everybody's answers.
        raise ApiError(400, "a raw prompt must not end with an image")
    data = [base64.b64encode(images[place]).decode() for place in places]
    return {"prompt_string": marked, "multimodal_data": data}


async def _open(
    stack: AsyncExitStack, lease: Lease, wish: Wish, prompt: str | list[int] | dict[str, Any], clock: Clock
) -> Generation:
    body = {"prompt": prompt, **sampling(wish.options, lease.context), **completion_format(wish.format)}
    if wish.top_logprobs is not None:
        body["n_probs"] = max(wish.top_logprobs, 1)
    translator = CompletionTranslator(**wish.switches)
    return await Generation.open(stack, lease, clock, COMPLETION, body, translator)


async def tokenize(lease: Lease, text: str, *, special: bool = True) -> list[int]:
    """The runner's tokens of a text; `special`: with those it puts round every prompt."""
    answer = await lease.ask("/tokenize", {"content": text, "add_special": special})
    tokens: list[int] = answer["tokens"]
    return tokens


def keep_ends(tokens: Sequence[int], context: int, keep: int) -> list[int]:
    """The first `keep` tokens (the begin token counts extra; negative: as many as can be) and the newest ones.

    Half of what is left stays free for the answer.
    """
    keep = len(tokens) if keep < 0 else keep + 1
    keep = max(0, min(keep, context - 4))
    limit = context - max((context - keep) // 2, 1)
    if len(tokens) <= limit:
        return list(tokens)
    tail = limit - keep
    return [*tokens[:keep], *(tokens[len(tokens) - tail :] if tail > 0 else ())]
