"""From the name in a request to a model, with each route's own words for the three ways this can fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from trio_ollama.models.capabilities import capabilities
from trio_ollama.models.errors import BrokenModelError, InvalidNameError, ModelNotFoundError
from trio_ollama.models.metadata import Metadata
from trio_ollama.models.model import Model
from trio_ollama.models.names import ModelName, Source, split_source
from trio_ollama.scheduler import ModelFacts
from trio_ollama.server.errors import ApiError
from trio_ollama.server.facts import model_facts
from trio_ollama.server.services import Services

__all__ = ["WORDS", "Target", "Words", "find", "find_target", "parse_name"]


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
    }
)
"""The table of the compatibility specification, one row per route."""


@dataclass(frozen=True, slots=True)
class Target:
    """A model that a request wants to use, and what its files say of it."""

    model: Model
    metadata: Metadata
    capabilities: frozenset[str]
    facts: ModelFacts
    given: str
    """The name as the request has it; it comes back in the answer and in error texts."""


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
    name = parse_name(given, words)
    try:
        return await services.in_thread(services.store.resolve, name)
    except ModelNotFoundError:
        status, form = words.absent
        raise ApiError(status, form.format(given=given, short=name.short)) from None


async def find_target(services: Services, given: str, words: Words) -> Target:
    """The model of that name, ready to be run: refuses the kinds that no runner of ours can host."""
    model = await find(services, given, words)
    if model.config.remote_host:
        raise ApiError(403, "ollama cloud is disabled: remote model is unavailable")
    if model.format == "safetensors":
        raise ApiError(400, "this model requires MLX support, but the MLX runtime is not available")

    digest, path = model.weights_digest, model.weights_path
    if digest is None or path is None:
        raise BrokenModelError(f"model '{model.name.short}' has no weights")

    def read() -> Target:
        metadata = services.metadata.get(digest, path)
        able = frozenset(capabilities(model, metadata))
        return Target(model, metadata, able, model_facts(model, metadata, able), given)

    return await services.in_thread(read)
