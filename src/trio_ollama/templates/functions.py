"""The functions of templates: Go's own, and those that Ollama adds.

`and` and `or` are not here: they may leave arguments unevaluated (evaluate.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from .formatting import sprint, sprintf, sprintln
from .values import JsonList, Record, Value, encode, is_true, kind

__all__ = ["FUNCTIONS", "UNSUPPORTED", "Function"]

UNSUPPORTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "call": "there are no functions among the values",
        "html": "prompts are not HTML",
        "js": "prompts are not JavaScript",
        "urlquery": "prompts are no addresses",
    }
)
"""Functions Go has and this engine refuses, with the reason."""


@dataclass(frozen=True, slots=True)
class Function:
    """`call` gets today's date and the arguments, and raises ValueError with a reason."""

    call: Callable[[datetime.date, Sequence[Value]], Value]
    least: int
    most: int | None = None
    """Arguments; None for any number."""


def _plain(call: Callable[..., Value], least: int, most: int | None) -> Function:
    return Function(lambda _today, arguments: call(*arguments), least, most)


_ORDERED: Final = ("integer", "float", "string")
_COMPARED: Final = ("bool", *_ORDERED)


def _equal(first: Value, second: Value) -> bool:
    kinds = kind(first), kind(second)
    if "nil" in kinds:
        return kinds == ("nil", "nil")
    if kinds[0] != kinds[1]:
        raise ValueError(f"{kinds[0]} and {kinds[1]} cannot be compared")
    if kinds[0] not in _COMPARED:
        raise ValueError(f"two values of kind {kinds[0]} cannot be compared")
    return bool(first == second)


def _eq(first: Value, *others: Value) -> bool:
    return any(_equal(first, other) for other in others)


def _less(first: Value, second: Value) -> bool:
    kinds = kind(first), kind(second)
    for name in kinds:
        if name not in _ORDERED:
            raise ValueError(f"a value of kind {name} has no order")
    if kinds[0] != kinds[1]:
        raise ValueError(f"{kinds[0]} and {kinds[1]} cannot be compared")
    return bool(first < second)


def _less_or_equal(first: Value, second: Value) -> bool:
    return _less(first, second) or _equal(first, second)


def _len(value: Value) -> int:
    match kind(value):
        case "string":
            return len(value) if value.isascii() else len(value.encode())
        case "list" | "map":
            return len(value)
        case other:
            raise ValueError(f"a value of kind {other} has no length")


def _index(value: Value, *keys: Value) -> Value:
    if value is None:
        raise ValueError("nil has no elements")
    for key in keys:
        value = _element(value, key)
    return value


def _element(value: Value, key: Value) -> Value:
    match kind(value):
        case "map":
            if not isinstance(key, str):
                raise ValueError(f"a map has no keys of kind {kind(key)}")
            return value.get(key)
        case "list":
            return value[_position(key, len(value) - 1)]
        case "string":
            data = value.encode()
            return data[_position(key, len(data) - 1)]
        case other:
            raise ValueError(f"a value of kind {other} has no elements")


def _position(key: Value, last: int) -> int:
    if kind(key) != "integer":
        raise ValueError(f"an index of kind {kind(key)}")
    if not 0 <= key <= last:
        raise ValueError(f"the index {key} is out of range")
    return int(key)


def _slice(value: Value, *bounds: Value) -> Value:
    if kind(value) not in ("string", "list"):
        raise ValueError(f"a value of kind {kind(value)} cannot be sliced")
    whole = value.encode() if isinstance(value, str) else value
    if len(bounds) == 3 and isinstance(value, str):
        raise ValueError("a string cannot be sliced with three indexes")
    positions = [_position(bound, len(whole)) for bound in bounds]
    start, end, *most = (*positions, *(0, len(whole))[len(positions) :])
    if start > end or (most and end > most[0]):
        raise ValueError(f"the slice from {start} to {end} is out of range")
    part = whole[start:end]
    if isinstance(value, JsonList):
        return JsonList(part)
    # A cut inside a character leaves no character, as it would after a round trip through JSON.
    return part.decode("utf-8", "replace") if isinstance(value, str) else part


def _printf(form: Value, *arguments: Value) -> str:
    if not isinstance(form, str):
        raise ValueError(f"printf needs a string first, not a value of kind {kind(form)}")
    return sprintf(form, arguments)


def _json(value: Value) -> str:
    try:
        return encode(value)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


_TYPESCRIPT: Final[Mapping[Any, str]] = MappingProxyType(
    {
        "string": "string",
        "number": "number",
        "integer": "number",
        "boolean": "boolean",
        "array": "any[]",
        "object": "Record<string, any>",
        "null": "null",
    }
)


def _typescript(value: Value) -> str:
    if not isinstance(value, Record) or "AnyOf" not in value.fields:
        return "any"
    choices = value.fields["AnyOf"]
    types = map(_typescript, choices) if choices else (_TYPESCRIPT.get(name, "any") for name in value.fields["Type"])
    return " | ".join(types) or "any"


def _date(days_ago: int) -> Function:
    return Function(lambda today, _: (today - datetime.timedelta(days=days_ago)).isoformat(), 0)


FUNCTIONS: Final[Mapping[str, Function | None]] = MappingProxyType(
    {
        "and": None,
        "or": None,
        "not": _plain(lambda value: not is_true(value), 1, 1),
        "eq": _plain(_eq, 2, None),
        "ne": _plain(lambda first, second: not _equal(first, second), 2, 2),
        "lt": _plain(_less, 2, 2),
        "le": _plain(_less_or_equal, 2, 2),
        "gt": _plain(lambda first, second: not _less_or_equal(first, second), 2, 2),
        "ge": _plain(lambda first, second: not _less(first, second), 2, 2),
        "len": _plain(_len, 1, 1),
        "index": _plain(_index, 1, None),
        "slice": _plain(_slice, 1, 4),
        "print": _plain(lambda *values: sprint(values), 0, None),
        "printf": _plain(_printf, 1, None),
        "println": _plain(lambda *values: sprintln(values), 0, None),
        "json": _plain(_json, 1, 1),
        "currentDate": _date(0),
        "yesterdayDate": _date(1),
        "toTypeScriptType": _plain(_typescript, 1, 1),
    }
)
"""By name; None for the two that the evaluator knows itself."""
