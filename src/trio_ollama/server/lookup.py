"""From the name in a request to a model, with each route's own words for the three ways this can fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeVar

from trio_ollama.models.capabilities import capabilities
from trio_ollama.models.errors import BrokenModelError, InvalidGgufError, InvalidNameError, ModelNotFoundError
from trio_ollama.models.metadata import Metadata
from trio_ollama.models.model import Model
from trio_ollama.models.names import ModelName, Source, split_source
from trio_ollama.models.prompting import ignored, mode_of, stored_template
from trio_ollama.server.errors import ApiError
from trio_ollama.server.facts import model_facts
from trio_ollama.server.services import Services
from trio_ollama.server.targets import Target
from trio_ollama.templates import Native

__all__ = ["WORDS", "Target", "Words", "find", "find_target", "parse_name"]

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Words:
    """What one route says. `{given}` is the name as it came, `{short}` its shortest full form."""

    empty: tuple[int, str] = (400, "model is required")
    invalid: tuple[int, str] = (400, "invalid model name")
    absent: tuple[int, str] = (404, "model '{given}' not found")


_PULL_FIRST: Final = (404, 'model "{given}" not found, try pulling it first')

WORDS: Final[Mapping[str, Words]] = MappingProxyType(
    {
        "generate": Words(empty=(404, "model '' not found")),
        "chat": Words(),
        "embed": Words(empty=(404, "model '' not found"), absent=_PULL_FIRST),
        "embeddings": Words(absent=_PULL_FIRST),
        "show": Words(absent=(404, "model '{short}' not found")),
        "delete": Words(invalid=(400, 'name "{given}" is invalid')),
        "create": Words(empty=(400, "invalid model name")),
        "pull": Words(empty=(400, "invalid model name")),
        "push": Words(),
        "fit": Words(),
    }
)
"""Ollama's own words, one row per route (`fit` is ours)."""


def parse_name(given: str, words: Words) -> ModelName:
    """The name in a request. Raises `ApiError`; a model that lives in the cloud is none of ours."""
    text = given.strip()
    if not text:
        raise ApiError(*words.empty)
    try:
        text, source = split_source(text)
        name = ModelName.parse(text)
    except InvalidNameError as error:
        if "not both" in str(error):
            raise ApiError(400, str(error)) from None
        status, form = words.invalid
        raise ApiError(status, form.format(given=given)) from None
    if source is Source.CLOUD:
        raise ApiError(403, "ollama cloud is disabled: remote model is unavailable")
    return name


async def find(services: Services, given: str, words: Words) -> Model:
    """The model of that name in the store. Raises `ApiError`, or what the store says of a broken one."""
    return await _find(services, given, words, services.store.resolve)


async def find_target(services: Services, given: str, words: Words) -> Target:
    """The model of that name, ready to be run: refuses the kinds that no runner of ours can host."""

    def target(name: ModelName) -> Target:
        entry = services.store.entry(name)
        known = services.targets.get(entry)
        if known is None:
            known = _read(services, services.store.load(entry), given)
            services.targets.put(entry, known)
        return replace(known, given=given)

    return await _find(services, given, words, target)


def _read(services: Services, model: Model, given: str) -> Target:
    if model.config.remote_host:
        raise ApiError(403, "ollama cloud is disabled: remote model is unavailable")
    if model.format == "safetensors":
        raise ApiError(400, "this model requires MLX support, but the MLX runtime is not available")
    if model.weights_digest is None or model.weights_path is None:
        raise BrokenModelError(f"model '{model.name.short}' has no weights")
    metadata = services.metadata.get(model.weights_digest, model.weights_path)
    setting = services.settings.go_template
    able = frozenset(capabilities(model, metadata, _projector(services, model), setting=setting))
    if unused := ignored(model, metadata, setting):
        logger.info("%s: %s", model.name.short, unused)
    mode, stored = mode_of(model, metadata, setting), stored_template(model, setting)
    builtin = mode.builtin if isinstance(mode, Native) else None
    facts = model_facts(model, metadata, able, chat_template=builtin or "")
    return Target(model, metadata, able, facts, given, mode, stored)


def _projector(services: Services, model: Model) -> Metadata | None:
    """The header of the encoder that is used; None without one, or if it is damaged: the load will say so."""
    if not model.projectors:
        return None
    try:
        return services.metadata.get(model.projector_digests[0], model.projectors[0])
    except InvalidGgufError:
        return None


async def _find(services: Services, given: str, words: Words, use: Callable[[ModelName], T]) -> T:
    """Go on with the name by `use`, all in one visit to a thread."""
    name = parse_name(given, words)
    try:
        return await services.in_thread(lambda: use(name))
    except ModelNotFoundError:
        status, form = words.absent
        raise ApiError(status, form.format(given=given, short=name.short)) from None
