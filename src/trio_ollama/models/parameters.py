"""The options that a Modelfile may set, with their types; and how stored ones are shown."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .errors import ModelfileError

__all__ = ["OPTION_TYPES", "parameters_text", "parse_parameters"]

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
