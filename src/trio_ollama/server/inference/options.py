"""The `options` object of a request: names, types and defaults in one table, and what the runner is told of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from trio_ollama.server.errors import ApiError

__all__ = ["DEFAULTS", "KINDS", "merge", "parse", "sampling"]

logger = logging.getLogger(__name__)

KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "draft_num_predict"), "integer"),
        "use_mmap": "boolean",
        **dict.fromkeys(("num_keep", "seed", "num_predict", "top_k", "repeat_last_n"), "integer"),
        **dict.fromkeys(("top_p", "min_p", "typical_p", "temperature"), "float32"),
        **dict.fromkeys(("repeat_penalty", "presence_penalty", "frequency_penalty"), "float32"),
        "stop": "array",
    }
)
"""Every option there is, with the type its error text names."""

DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "num_keep": 4,
        "seed": -1,
        "num_predict": -1,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.0,
        "typical_p": 1.0,
        "repeat_last_n": 64,
        "temperature": 0.8,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": (),
    }
)
"""What the options that do not concern the launch are when nobody says otherwise."""

_INT64: Final = (1 << 63) - 1


def parse(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Checked options: unknown names and nulls are left out, numbers have their option's type.

    Raises `ApiError` 400 with the text that clients know for a value of another type.
    """
    parsed = {}
    for name, value in raw.items():
        kind = KINDS.get(name)
        if kind is None:
            logger.warning("ignoring unknown option %r", name)
        elif value is not None:
            parsed[name] = _PARSERS[kind](name, value)
    return parsed


def merge(model: Mapping[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Options in effect: the defaults, over them the model's own, over them the request's (both unchecked)."""
    return {**DEFAULTS, **parse(model), **parse(request)}


def sampling(options: Mapping[str, Any], context: int) -> dict[str, Any]:
    """The fields of a runner call that come from merged `options`; `context` is the runner's, in tokens per slot."""
    # A model that never stops must not hold a slot for ever.
    bound = 10 * context
    predict = options["num_predict"]
    fields = {name: options[name] for name in _SAMPLING}
    fields["n_keep"] = options["num_keep"]
    fields["n_predict"] = bound if predict < 0 or predict > bound else predict
    if options["stop"]:
        fields["stop"] = list(options["stop"])
    return fields


_SAMPLING: Final = (
    *("seed", "temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty"),
)


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(400, f'option "{name}" must be of type integer')
    # Saturates: neither the runner nor its JSON knows larger numbers.
    return int(max(-_INT64, min(value, _INT64)))


def _float(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(400, f'option "{name}" must be of type float32')
    return float(max(-_INT64, min(value, _INT64)))


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ApiError(400, f'option "{name}" must be of type boolean')
    return value


def _strings(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ApiError(400, f'option "{name}" must be of type array')
    if not all(isinstance(item, str) for item in value):
        raise ApiError(400, f'option "{name}" must be of an array of strings')
    return tuple(value)


_PARSERS: Final = {"integer": _integer, "float32": _float, "boolean": _boolean, "array": _strings}
