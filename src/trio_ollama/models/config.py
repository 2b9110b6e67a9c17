"""The config of a model in the making: the parent's, or what its files say, and what the request says over both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from . import manifest as media
from .create_request import CreateRequest
from .details import human_count
from .errors import CreateError
from .manifest import ConfigBlob
from .metadata import Metadata
from .model import Model
from .parts import Part
from .quantization import mixture

__all__ = ["config_of", "told"]

_BUILT_IN: Final = {
    "gemma4": "gemma4",
    "laguna": "laguna",
    "nemotron_h": "nemotron-3-nano",
    "nemotron_h_moe": "nemotron-3-nano",
}
"""Architecture to the renderer and parser that Ollama is to use for it."""


def config_of(request: CreateRequest, parent: Model | None, parts: Iterable[Part]) -> ConfigBlob:
    """The config: the parent's, or what the model file says; families of all files are noted."""
    config = parent.config if parent is not None else _described(parts)
    own = {name: getattr(request, name) for name in ("renderer", "parser", "requires") if getattr(request, name)}
    if parent is not None and request.quantize:
        own["file_type"] = mixture(request.quantize).name
    families = dict.fromkeys((*(config.model_families or ()), *(part.metadata.architecture for part in parts)))
    config = msgspec.structs.replace(config, model_families=tuple(families) or None, architecture="amd64", os="linux")
    return msgspec.structs.replace(config, **own, **told(request.info or {}))


def _described(parts: Iterable[Part]) -> ConfigBlob:
    metadata: Metadata = next(part.metadata for part in parts if part.media_type == media.MODEL)
    built_in = _BUILT_IN.get(metadata.architecture)
    return ConfigBlob(
        model_format="gguf",
        model_family=metadata.architecture,
        model_families=(metadata.architecture,),
        model_type=human_count(metadata.parameter_count),
        file_type=metadata.file_type,
        renderer=built_in,
        parser=built_in,
    )


def told(info: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the config that the request's `info` sets. Raises CreateError for a wrong type."""
    fields: dict[str, Any] = {}
    for name, value in info.items():
        match name, value:
            case _, None:
                pass
            case (("model_family" | "base_name" | "quantization_level" | "parameter_size"), _):
                if not isinstance(value, str):
                    raise CreateError(f'info field "{name}" must be a string')
                fields[_INFO.get(name, name)] = value
            case (("context_length" | "embedding_length"), _):
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise CreateError(f'info field "{name}" must be a number')
                if value < 0 or value != int(value):
                    raise CreateError(f'info field "{name}" must be a non-negative integer')
                fields[name] = int(value)
            case "capabilities", _:
                if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                    raise CreateError(f'info field "{name}" must be an array of strings')
                fields[name] = tuple(value)
    if "model_family" in fields:
        fields["model_families"] = (fields["model_family"],)
    return fields


_INFO: Final = {"quantization_level": "file_type", "parameter_size": "model_type"}
"""Names in a request to names in the config, where they differ."""
