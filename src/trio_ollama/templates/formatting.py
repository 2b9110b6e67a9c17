"""`print`, `println` and `printf`: Go's verbs, flags, widths and precisions, and what it prints for wrong arguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from .values import JsonList, JsonMap, Names, Record, Value, show, show_float

__all__ = ["check_format", "sprint", "sprintf", "sprintln"]

MAX_WIDTH: Final = 1000

_DIRECTIVE: Final = re.compile(r"%([-+ 0#]*)(\d*)(?:(\.)(\d*))?(.|$)", re.DOTALL)
_SUPPORTED: Final = frozenset("vdsqtfFeEgGxXobc%")
_TYPES: Final = ((str, "string"), (bool, "bool"), (int, "int"), (float, "float64"))
_ESCAPED: Final = MappingProxyType({7: "\\a", 8: "\\b", 12: "\\f", 11: "\\v"})


@dataclass(frozen=True, slots=True)
class _Directive:
    flags: str
    width: int
    precision: int | None
    verb: str

    def padded(self, text: str, *, number: bool = False) -> str:
        """To the width; zeros go between a number's sign and its digits."""
        if "-" in self.flags:
            return text.ljust(self.width)
        if "0" in self.flags:
            sign = text[:1] if number and text[:1] in tuple("+-") else ""
            return sign + text[len(sign) :].rjust(self.width - len(sign), "0")
        return text.rjust(self.width)

    def signed(self, text: str) -> str:
        sign = "" if text.startswith(("-", "+")) else "+" if "+" in self.flags else " " if " " in self.flags else ""
        return self.padded(sign + text, number=True)


def check_format(form: str) -> None:
    """Raises ValueError for a `printf` format that uses what is not supported."""
    for found in _DIRECTIVE.finditer(form):
        _directive(found)


def sprint(values: Sequence[Value]) -> str:
    """All values, with a blank between two that are both no strings. Raises ValueError."""
    parts: list[str] = []
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            parts.append(" ")
        parts.append(show(value))
    return "".join(parts)


def sprintln(values: Sequence[Value]) -> str:
    """All values with blanks between them, and a line break. Raises ValueError."""
    return " ".join(map(show, values)) + "\n"


def sprintf(form: str, values: Sequence[Value]) -> str:
    """Raises ValueError for a format that is not supported, never for arguments that do not fit it: like Go, it says
    in the text what is wrong with them."""
    left = list(values)

    def expand(found: re.Match[str]) -> str:
        directive = _directive(found)
        if directive.verb == "%":
            return "%"
        if not directive.verb:
            return "%!(NOVERB)"
        if not left:
            return f"%!{directive.verb}(MISSING)"
        return _format(directive, left.pop(0), outermost=True)

    text = _DIRECTIVE.sub(expand, form)
    if left:
        extra = ("<nil>" if value is None else f"{_type(value)}={show(value)}" for value in left)
        text += f"%!(EXTRA {', '.join(extra)})"
    return text


def _directive(found: re.Match[str]) -> _Directive:
    flags, width, point, precision, verb = found.groups()
    if verb not in _SUPPORTED and (verb or point):
        raise ValueError(f"printf with %{verb or point} is not supported")
    if "#" in flags:
        raise ValueError("printf with the flag # is not supported")
    if int(width or 0) > MAX_WIDTH or int(precision or 0) > MAX_WIDTH:
        raise ValueError(f"printf with a width above {MAX_WIDTH} is not supported")
    return _Directive(flags, int(width or 0), int(precision or 0) if point else None, verb)


def _type(value: Value) -> str:
    named = (name for kind, name in _TYPES if isinstance(value, kind))
    return next(named, "map[string]interface {}" if isinstance(value, dict) else "[]interface {}")


def _format(directive: _Directive, value: Value, *, outermost: bool = False) -> str:
    """Lists and maps apply the verb to what they hold."""
    verb = directive.verb
    if value is None:
        return directive.padded("<nil>") if verb == "v" or not outermost else f"%!{verb}(<nil>)"
    if isinstance(value, Record | JsonList | JsonMap | Names) and verb in "vsqxX":
        value = show(value)
    match value:
        case bool():
            return directive.padded(show(value)) if verb in "vt" else _wrong(directive, value)
        case int() if verb in _INTEGERS:
            return _INTEGERS[verb](directive, value)
        case float() if verb in _FLOATS:
            return directive.signed(_FLOATS[verb](value, directive.precision))
        case str() if verb in _STRINGS:
            cut = value if directive.precision is None else value[: directive.precision]
            return directive.padded(_STRINGS[verb](cut))
        case str() | int() | float() | Record():
            return _wrong(directive, value)
        case Mapping():
            items = (f"{_format(directive, key)}:{_format(directive, value[key])}" for key in sorted(value))
            return f"map[{' '.join(items)}]"
        case _:
            return f"[{' '.join(_format(directive, item) for item in value)}]"


def _wrong(directive: _Directive, value: Value) -> str:
    return f"%!{directive.verb}({_type(value)}={_format(replace(directive, verb='v'), value)})"


def _digits(base: str) -> Callable[[_Directive, int], str]:
    def write(directive: _Directive, value: int) -> str:
        digits = format(abs(value), base)
        if directive.precision is not None:
            digits = digits.rjust(directive.precision, "0") if value or directive.precision else ""
            directive = _Directive(directive.flags.replace("0", ""), directive.width, None, directive.verb)
        return directive.signed(("-" if value < 0 else "") + digits)

    return write


def _character(directive: _Directive, value: int) -> str:
    valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000
    text = chr(value) if valid else "\ufffd"
    return directive.padded(_quoted(text, "'") if directive.verb == "q" else text)


def _quoted(text: str, quote: str = '"') -> str:
    """Between quotes, with Go's escapes for what cannot be printed."""
    return quote + "".join(_escaped(character, quote) for character in text) + quote


def _escaped(character: str, quote: str) -> str:
    code = ord(character)
    if character in (quote, "\\"):
        return f"\\{character}"
    if character.isprintable():
        return character
    if character in "\n\r\t":
        return json.dumps(character)[1:-1]
    if code in _ESCAPED:
        return _ESCAPED[code]
    return f"\\x{code:02x}" if code < 128 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _general(value: float, precision: int | None) -> str:
    if precision is None:
        return show_float(value)
    return format(value, f".{precision or 1}g")


def _fixed(verb: str) -> Callable[[float, int | None], str]:
    return lambda value, precision: format(value, f".{6 if precision is None else precision}{verb}")


_INTEGERS: Final[Mapping[str, Callable[[_Directive, int], str]]] = MappingProxyType(
    {
        **dict.fromkeys("vd", _digits("d")),
        **{verb: _digits(verb) for verb in "xXob"},
        **dict.fromkeys("cq", _character),
    }
)
_FLOATS: Final[Mapping[str, Callable[[float, int | None], str]]] = MappingProxyType(
    {
        **dict.fromkeys("vg", _general),
        "G": lambda value, precision: _general(value, precision).upper(),
        **{verb: _fixed(verb) for verb in "feEF"},
    }
)
_STRINGS: Final[Mapping[str, Callable[[str], str]]] = MappingProxyType(
    {
        "v": str,
        "s": str,
        "q": _quoted,
        "x": lambda text: text.encode().hex(),
        "X": lambda text: text.encode().hex().upper(),
    }
)
