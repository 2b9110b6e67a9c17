"""The continuation of a finished prompt, raw or rendered. `[img-N]` is where image N belongs."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
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
from trio_ollama.server.inference.translate import CompletionTranslator, Translator
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.services import Services
from trio_ollama.templates import without_bos

__all__ = [
    "keep_ends",
    "open_completion",
    "open_cut",
    "open_prompt",
    "text_of",
    "tokenize",
    "with_images",
    "without_second_bos",
]

COMPLETION: Final = "/completion"
_PLACE: Final = re.compile(r"\[img-(\d{1,4})\]")

_BOS_LENGTH: Final = 64
"""Characters that surely hold a begin token."""

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
    whole = with_images(prompt, message.images)
    wanted = demand(services, wish.target, wish.options, keep_alive=wish.keep_alive, shift=wish.shift)
    lease = await acquire(services, stack, wanted, clock)
    if wish.remember:
        clock.remember = partial(_context, lease, prompt)
    try:
        return await open_prompt(stack, lease, wish, whole, clock)
    except RunnerRefusedError as error:
        if images or not (wish.truncate and overflows(error)):
            raise
    return await open_cut(stack, lease, wish, prompt, clock)


async def _context(lease: Lease, prompt: str, answer: str) -> tuple[int, ...]:
    return tuple(await tokenize(lease, prompt + answer))


async def open_prompt(
    stack: AsyncExitStack,
    lease: Lease,
    wish: Wish,
    prompt: str | list[int] | dict[str, Any],
    clock: Clock,
    translator: Translator | None = None,
) -> Generation:
    """Start the continuation of a prompt in any form that the runner takes. Raises what it says."""
    body = {"prompt": prompt, **sampling(wish.options, lease.context), **completion_format(wish.format)}
    if wish.top_logprobs is not None:
        body["n_probs"] = max(wish.top_logprobs, 1)
    return await Generation.open(
        stack, lease, clock, COMPLETION, body, translator or CompletionTranslator(**wish.switches)
    )


async def open_cut(
    stack: AsyncExitStack, lease: Lease, wish: Wish, prompt: str, clock: Clock, translator: Translator | None = None
) -> Generation:
    """Start the continuation of a prompt that is too long, with its middle left out.

    Raises `ApiError` 400 where the context is not shifted either: then nothing may be forgotten.
    """
    if not context_shift(wish.target, wish.shift):
        raise ApiError(400, TOO_LONG)
    tokens = await tokenize(lease, prompt)
    kept = keep_ends(tokens, lease.context, wish.options["num_keep"])
    return await open_prompt(stack, lease, wish, kept, clock, translator)


async def without_second_bos(lease: Lease, wish: Wish, prompt: str) -> str:
    """The prompt without the begin token that its template wrote, if the tokenizer writes one, too."""
    begin = wish.target.metadata.integer("tokenizer.ggml.bos_token_id", -1)
    if begin < 0 or not prompt.startswith(("<", "[")):
        return prompt  # nothing that could be one
    if (await tokenize(lease, prompt[:_BOS_LENGTH]))[:2] != [begin, begin]:
        return prompt
    return without_bos(prompt, await text_of(lease, [begin]))


def with_images(prompt: str, images: Sequence[bytes]) -> str | dict[str, Any]:
    """What the runner takes for a prompt. Raises `ApiError` 400 unless each image has its place in it."""
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


async def tokenize(lease: Lease, text: str, *, special: bool = True) -> list[int]:
    """The runner's tokens of a text; `special`: with those it puts round every prompt."""
    answer = await lease.ask("/tokenize", {"content": text, "add_special": special})
    tokens: list[int] = answer["tokens"]
    return tokens


async def text_of(lease: Lease, tokens: Sequence[int]) -> str:
    """The text that the runner has for these tokens, special ones as well."""
    text: str = (await lease.ask("/detokenize", {"tokens": list(tokens)}))["content"]
    return text


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
