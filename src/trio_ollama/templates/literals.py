"""Strings, characters and numbers as Go writes them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["character", "number", "string"]

_ESCAPE: Final = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))|(\\)", re.DOTALL
)
_SIMPLE: Final = dict(zip("abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\"", strict=True)).__getitem__
_DECIMAL: Final = re.compile(r"[+-]?(?:0|[1-9](?:_?[0-9])*)")
_BASED: Final = re.compile(r"([+-]?)0(?:[xX]((?:_?[0-9a-fA-F])+)|[bB]((?:_?[01])+)|[oO]?((?:_?[0-7])+))")
_FLOAT: Final = re.compile(
    r"[+-]?(?:[0-9](?:_?[0-9])*\.?(?:[0-9](?:_?[0-9])*)?|\.[0-9](?:_?[0-9])*)(?:[eE][+-]?[0-9]+)?"
)
_LARGEST: Final = (1 << 63) - 1


def string(literal: str) -> str:
    """The value of a quoted or a raw string. Raises ValueError with a reason."""
    if literal.startswith("`"):
        return literal[1:-1].replace("\r", "")
    return _unescaped(literal[1:-1], '"')


def character(literal: str) -> int:
    """The code point of a character in single quotes. Raises ValueError with a reason."""
    value = _unescaped(literal[1:-1], "'")
    if len(value) != 1:
        raise ValueError(f"{literal} is not one character")
    return ord(value)


def _unescaped(body: str, quote: str) -> str:
    if "\\" not in body:
        return body
    # Escapes may name single bytes, so characters are put together only at the end.
    parts, at = bytearray(), 0
    for found in _ESCAPE.finditer(body):
        simple, byte, octal, short, long, wrong = found.groups()
        parts += body[at : found.start()].encode("utf-8", "surrogatepass")
        at = found.end()
        if wrong or (simple in ("'", '"') and simple != quote) or (octal and int(octal, 8) > 255):
            raise ValueError(f"unknown escape {body[found.start() : found.start() + 2]}")
        if simple:
            parts += _SIMPLE(simple).encode()
        elif byte or octal:
            parts.append(int(byte, 16) if byte else int(octal, 8))
        else:
            parts += _code_point(int(short or long, 16))
    parts += body[at:].encode("utf-8", "surrogatepass")
    try:
        return parts.decode()
    except UnicodeDecodeError:
        raise ValueError("a string with escapes that are no valid UTF-8") from None


def _code_point(code: int) -> bytes:
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError(f"there is no character with number {code:#x}")
    return chr(code).encode()


def number(literal: str) -> int | float:
    """An integer of 64 bits, or a float if it has a point or an exponent. Raises ValueError with a reason."""
    if _DECIMAL.fullmatch(literal):
        return _checked(int(literal), literal)
    if based := _BASED.fullmatch(literal):
        sign, hexadecimal, binary, octal = (part.replace("_", "") if part else "" for part in based.groups())
        digits, base = (hexadecimal, 16) if hexadecimal else (binary, 2) if binary else (octal, 8)
        return _checked(int(sign + digits, base), literal)
    if _FLOAT.fullmatch(literal) and re.search(r"[.eE]", literal):
        value = float(literal)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"the number {literal} is too large")
        return value
    if literal.endswith("i"):
        raise ValueError(f"complex numbers like {literal} are not supported")
    raise ValueError(f"{literal} is not a number that is understood here")


def _checked(value: int, literal: str) -> int:
    if not -_LARGEST - 1 <= value <= _LARGEST:
        raise ValueError(f"the number {literal} is too large")
    return value
