"""From a dialect's understanding of a conversation to a wish that can be served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trio_ollama.server.inference.chat import check_abilities, check_template
from trio_ollama.server.inference.modes import Think
from trio_ollama.server.inference.options import merge
from trio_ollama.server.inference.wish import Wish
from trio_ollama.server.lookup import WORDS, find_target
from trio_ollama.server.services import Services

__all__ = ["chat_wish"]


async def chat_wish(
    services: Services,
    given: str,
    options: Mapping[str, Any],
    *,
    think: Think = None,
    think_if_able: bool = False,
    tools: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> Wish:
    """What a conversation with the model named `given` wants, checked: it may be scheduled.

    `options` come over the model's own; with `think_if_able` a model that cannot think is not asked to, instead of
    refused; `more` are fields of `Wish`. Raises `ApiError`, and what the store says of a broken model.
    """
    target = await find_target(services, given, WORDS["chat"])
    if think_if_able and "thinking" not in target.capabilities:
        think = None
    think = check_abilities(target, "chat", *(["tools"] if tools else []), think=think)
    check_template(target)
    return Wish(target, merge(target.model.params, options), think=think, tools=tools, **more)
