"""Durations as people write them: `1h30m`, `300ms`, `-1m`, and the forms of `keep_alive` in a request body.

All results are ints in nanoseconds; finite values saturate at `FOREVER` instead of wrapping round (R27).
"""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = ["FOREVER", "SECOND", "parse_go_duration", "parse_keep_alive"]

FOREVER: Final = (1 << 63) - 1
"""The largest 64-bit count of nanoseconds: "never"."""

SECOND: Final = 10**9

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, the micro sign
    "μs": 10**3,  # U+03BC, the Greek letter
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}

# The number may miss its whole or its fractional digits, never both; the unit is all up to the next number.
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")

# No 64-bit count has more digits; longer numbers are cut here so that no text can cost quadratic time.
_DIGITS: Final = 20


def parse_go_duration(text: str) -> int:
    """Nanoseconds in `text`, negative if it starts with a minus sign; a sum of `<number><unit>` parts.

    Units: ns, us (µs), ms, s, m, h. `0` needs no unit. Raises ValueError with the texts that clients know:
    `time: invalid duration "x"`, `time: missing unit in duration "10"`, `time: unknown unit "d" in duration "1d"`.
    """
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise ValueError(f"time: invalid duration {_quote(text)}")
    total = 0
    while rest:
        part = _PART.match(rest)
        assert part is not None  # every piece of the pattern may be empty
        whole, fraction, unit = part[1], part[2] or "", part[3]
        if not whole and not fraction:
            raise ValueError(f"time: invalid duration {_quote(text)}")
        if not unit:
            raise ValueError(f"time: missing unit in duration {_quote(text)}")
        scale = _UNITS.get(unit)
        if scale is None:
            raise ValueError(f"time: unknown unit {_quote(unit)} in duration {_quote(text)}")
        whole = whole.lstrip("0")
        if len(whole) > _DIGITS:
            total = FOREVER
        else:
            total += int(whole or "0") * scale
        fraction = fraction[:_DIGITS]
        total = min(FOREVER, total + int(fraction or "0") * scale // 10 ** len(fraction))
        rest = rest[part.end() :]
    return -total if text.startswith("-") else total


def parse_keep_alive(value: object) -> int | None:
    """The JSON value of `keep_alive` as nanoseconds; None if absent (null), `FOREVER` for anything negative.

    A number counts seconds, a string is a Go duration. Raises ValueError with the text of the 400 answer.
    """
    match value:
        case None:
            return None
        case str():
            nanoseconds = parse_go_duration(value)
        case bool():  # before int: Python's bool is one
            raise ValueError("Unsupported type: 'bool'")
        case int():
            nanoseconds = value * SECOND
        case float() if math.isnan(value):
            raise ValueError("Unsupported type: 'NaN'")
        case float():
            # Compared before the conversion: infinity has no int.
            nanoseconds = int(value * SECOND) if abs(value) < FOREVER / SECOND else FOREVER
            if value < 0:
                nanoseconds = -1  # also what is nearer to zero than one nanosecond
        case list() | tuple():
            raise ValueError("Unsupported type: '[]interface {}'")
        case dict():
            raise ValueError("Unsupported type: 'map[string]interface {}'")
        case _:
            raise ValueError(f"Unsupported type: '{type(value).__name__}'")
    return FOREVER if nanoseconds < 0 else min(nanoseconds, FOREVER)


def _quote(text: str) -> str:
    """`text` in double quotes; quotes and backslashes escaped, bytes outside printable ASCII as `\\xNN`."""
    quoted = "".join(
        f"\\{chr(byte)}" if chr(byte) in '"\\' else chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}"
        for byte in text.encode("utf-8", "surrogatepass")
    )
    return f'"{quoted}"'
