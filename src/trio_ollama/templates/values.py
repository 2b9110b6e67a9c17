"""What templates compute with: plain Python values, and records that stand for Go's structs.

None is Go's nil (also what a missing key of a map gives), tuples and lists are slices, mappings with string keys are
maps. Numbers of JSON stay integers if they are ones, where Go makes all of them floats and prints 1000000 as 1e+06.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

__all__ = ["JsonList", "JsonMap", "Names", "Record", "Value", "encode", "is_true", "kind", "show", "show_float"]

Value: TypeAlias = Any
"""None, bool, int, float, str, bytes, a list or tuple, a mapping, or a Record."""

_BYTES_OF_MARKUP: Final = re.compile("[<>&\u2028\u2029]")


class JsonList(tuple[Value, ...]):
    """A list that prints itself as JSON."""

    __slots__ = ()


class JsonMap(dict[str, Value]):
    """A map that prints itself as JSON."""

    __slots__ = ()


class Names(tuple[str, ...]):
    """One name or several: a single one prints, and is encoded, as if it were no list."""

    __slots__ = ()


class Record:
    """A struct: it has exactly these fields, and prints as JSON.

    `encoded` is what JSON shows of it, in that order; without it the record can neither be printed nor encoded.
    """

    __slots__ = ("encoded", "fields", "name")

    def __init__(self, name: str, fields: Mapping[str, Value], encoded: Mapping[str, Value] | None = None) -> None:
        self.name = name
        self.fields = fields
        self.encoded = encoded


def kind(value: Value) -> str:
    """The name of its kind, for messages and comparisons."""
    match value:
        case None:
            return "nil"
        case bool():
            return "bool"
        case int():
            return "integer"
        case float():
            return "float"
        case str():
            return "string"
        case Mapping():
            return "map"
        case Record():
            return value.name  # like `message`
        case _:
            return "list"


def is_true(value: Value) -> bool:
    """Not nil, false, zero or empty; a record always counts."""
    return isinstance(value, Record) or bool(value)


def show(value: Value) -> str:
    """As Go's `%v` prints it. Raises ValueError for what has no text."""
    match value:
        case str():
            return value
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return show_float(value)
        case Names():
            return value[0] if len(value) == 1 else f"[{' '.join(value)}]" if value else ""
        case Record() | JsonMap() | JsonList():
            return encode(value)
        case Mapping():
            return f"map[{' '.join(f'{key}:{show(item)}' for key, item in sorted(value.items()))}]"
        case _:
            return f"[{' '.join(map(show, value))}]"


def show_float(value: float) -> str:
    """The shortest digits that mean this number; with an exponent if that is below -4 or above 5."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return _float(value, -4, 6, 2)


def _float(value: float, smallest: int, too_large: int, width: int) -> str:
    """With an exponent of at least `width` digits unless `smallest` <= exponent < `too_large`."""
    number = Decimal(repr(value)).normalize()
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # finite
    leading = len(digits) + exponent - 1
    if value and not smallest <= leading < too_large:
        return _scientific(sign, digits, leading, width)
    return format(number, "f")


def _scientific(sign: int, digits: Sequence[int], exponent: int, width: int) -> str:
    text = "".join(map(str, digits))
    point = f".{text[1:]}" if text[1:] else ""
    return f"{'-' if sign else ''}{text[0]}{point}e{'-' if exponent < 0 else '+'}{abs(exponent):0{width}d}"


def encode(value: Value) -> str:
    """JSON as Go writes it: no blanks, keys sorted (but for records), `<`, `>` and `&` as escapes.

    Raises ValueError for what JSON cannot say.
    """
    return "".join(_pieces(value))


def _pieces(value: Value) -> Iterable[str]:
    match value:
        case None | bool() | int():
            yield "null" if value is None else show(value)
        case str():
            yield _quoted(value)
        case float():
            yield _json_float(value)
        case Names():
            yield from _pieces(value[0] if len(value) == 1 else list(value))
        case Record(encoded=None):
            raise ValueError(f"a {value.name} cannot be printed, only its fields can")
        case Record():
            yield from _object((value.encoded or {}).items())
        case Mapping():
            yield from _object(sorted(value.items()))
        case bytes():
            yield _quoted(base64.b64encode(value).decode())
        case JsonList() if not value:
            yield "null"  # a nil slice
        case _:
            separator = "["
            for item in value:
                yield separator
                yield from _pieces(item)
                separator = ","
            yield "]" if value else "[]"


def _object(items: Iterable[tuple[str, Value]]) -> Iterable[str]:
    separator = "{"
    for key, item in items:
        yield f"{separator}{_quoted(key)}:"
        yield from _pieces(item)
        separator = ","
    yield "{}" if separator == "{" else "}"


def _quoted(text: str) -> str:
    encoded = json.dumps(text, ensure_ascii=False)
    return _BYTES_OF_MARKUP.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded)


def _json_float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"JSON has no {show_float(value)}")
    return _float(value, -6, 21, 1)
