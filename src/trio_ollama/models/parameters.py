"""The options that a Modelfile may set, with their types; and how stored ones are shown."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .errors import CreateError, ModelfileError

__all__ = ["OPTION_TYPES", "check_parameters", "parameters_text", "parse_parameters"]

OPTION_TYPES: Final[Mapping[str, type]] = {
    "num_ctx": int,
    "num_batch": int,
    "num_gpu": int,
    "main_gpu": int,
    "use_mmap": bool,
    "num_thread": int,
    "draft_num_predict": int,
    "num_keep": int,
    "seed": int,
    "num_predict": int,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "typical_p": float,
    "repeat_last_n": int,
    "temperature": float,
    "repeat_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "stop": list,
}
"""Every option there is; `list` means strings, and that the option may be repeated."""

_DEPRECATED: Final = frozenset(
    (
        "penalize_newline",
        "low_vram",
        "f16_kv",
        "logits_all",
        "vocab_only",
        "use_mlock",
        "mirostat",
        "mirostat_tau",
        "mirostat_eta",
    )
)
_BOOLS: Final = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), False
)

logger = logging.getLogger(__name__)


def parse_parameters(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Texts to values: `stop` collects, of other names the last one counts.

    Raises ModelfileError for an unknown name or a value of the wrong type; deprecated names only warn.
    """
    parameters: dict[str, Any] = {}
    for name, text in pairs:
        if name in _DEPRECATED:
            logger.warning("parameter %s is deprecated and ignored", name)
            continue
        match OPTION_TYPES.get(name):
            case None:
                raise ModelfileError(f"unknown parameter '{name}'")
            case kind if kind is list:
                parameters.setdefault(name, []).append(text)
            case kind:
                parameters[name] = _scalar(kind, text)
    return parameters


def _scalar(kind: type, text: str) -> int | float | bool:
    try:
        if kind is bool:
            return _BOOLS[text]
        if "_" in text:  # Python would take it for a separator
            raise ValueError
        return int(text) if kind is int else float(text)
    except (ValueError, KeyError):
        raise ModelfileError(f"invalid {kind.__name__} value [{text}]") from None


def check_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that came as JSON, as they are stored: without nulls, fractions of whole numbers cut off.

    Raises CreateError with the text that a request with such an option would be answered with. Names that nobody knows
    are kept: who reads them may be newer.
    """
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if value is None:
            continue
        kind = OPTION_TYPES.get(name)
        if kind is None:
            logger.warning("parameter %s is not known to this server", name)
            checked[name] = value
        else:
            checked[name] = _checked(name, kind, value)
    return checked


def _checked(name: str, kind: type, value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is list:
        if not isinstance(value, list):
            raise CreateError(f'option "{name}" must be of type array')
        if not all(isinstance(item, str) for item in value):
            raise CreateError(f'option "{name}" must be of an array of strings')
    elif kind is bool and not isinstance(value, bool):
        raise CreateError(f'option "{name}" must be of type boolean')
    elif kind in (int, float) and not number:
        raise CreateError(f'option "{name}" must be of type {"integer" if kind is int else "float32"}')
    return int(value) if kind is int else value


def parameters_text(parameters: Mapping[str, Any]) -> str:
    """One line for each value, sorted by name: the name padded to 30 columns, a space, the value (strings quoted)."""
    lines = []
    for name, value in sorted(parameters.items()):
        for item in value if isinstance(value, list) else [value]:
            lines.append(f"{name:<30} {json.dumps(_plain(item), ensure_ascii=False)}")
    return "\n".join(lines)


def _plain(value: object) -> object:
    """A whole number is shown without a fraction, whatever its type."""
    return int(value) if isinstance(value, float) and abs(value) < 1e15 and value.is_integer() else value
