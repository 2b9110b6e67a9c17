"""Durations in Go's notation and the forms of `keep_alive` (R27)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_ollama.durations import FOREVER, SECOND, parse_go_duration, parse_keep_alive

MINUTE = 60 * SECOND


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("0s", 0),
        ("5m", 5 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("-1m", -MINUTE),
        ("+90s", 90 * SECOND),
        ("1.5s", 1_500_000_000),
        (".5s", 500_000_000),
        ("1.s", SECOND),
        ("300ms", 300_000_000),
        ("7us", 7_000),
        ("7µs", 7_000),
        ("7μs", 7_000),
        ("12ns", 12),
        ("1m1m", 2 * MINUTE),
        ("1h2m3.004s5ms6us7ns", 3723 * SECOND + 9_006_007),
        ("0.999999999s", 999_999_999),
        ("2562047h47m16.854775807s", FOREVER),
        ("9999999h", FOREVER),
        ("-9999999h", -FOREVER),
        ("9" * 10_000 + "h", FOREVER),
        ("0." + "1" * 10_000 + "s", 111_111_111),
        ("0" * 10_000 + "1s", SECOND),
    ],
)
def test_go_durations(text: str, nanoseconds: int) -> None:
    assert parse_go_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        (".", 'time: invalid duration "."'),
        (".s", 'time: invalid duration ".s"'),
        ("x", 'time: invalid duration "x"'),
        ("--1m", 'time: invalid duration "--1m"'),
        (" 1m", 'time: invalid duration " 1m"'),
        ("10", 'time: missing unit in duration "10"'),
        ("-1", 'time: missing unit in duration "-1"'),
        ("1.5", 'time: missing unit in duration "1.5"'),
        ("1h30", 'time: missing unit in duration "1h30"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1m ", 'time: unknown unit "m " in duration "1m "'),
        ("1H", 'time: unknown unit "H" in duration "1H"'),
        ('1"\\é', r'time: unknown unit "\"\\\xc3\xa9" in duration "1\"\\\xc3\xa9"'),
        ("١s", r'time: invalid duration "\xd9\xa1s"'),
    ],
)
def test_wrong_durations_name_the_mistake(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        parse_go_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "nanoseconds"),
    [
        (None, None),
        (0, 0),
        (0.0, 0),
        (-0.0, 0),
        ("0", 0),
        (300, 300 * SECOND),
        (1.5, 1_500_000_000),
        (0.0005, 500_000),
        (-1, FOREVER),
        (-1e-30, FOREVER),
        (-1e300, FOREVER),
        (1e300, FOREVER),
        (math.inf, FOREVER),
        (10**30, FOREVER),
        (9.3e9, FOREVER),
        ("10m", 10 * MINUTE),
        ("-1m", FOREVER),
    ],
)
def test_keep_alive_forms(value: object, nanoseconds: int | None) -> None:
    assert parse_keep_alive(value) == nanoseconds


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (True, "Unsupported type: 'bool'"),
        ([], "Unsupported type: '[]interface {}'"),
        ({}, "Unsupported type: 'map[string]interface {}'"),
        ("10", 'time: missing unit in duration "10"'),
    ],
)
def test_keep_alive_of_another_kind_is_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared
        parse_keep_alive(value)
    assert str(caught.value) == message


@given(st.text(alphabet="0123456789.+-hmsunµ x"))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        value = parse_go_duration(text)
    except ValueError as error:
        assert str(error).startswith("time: ")  # noqa: PT017 - either outcome is right
    else:
        assert type(value) is int
        assert -FOREVER <= value <= FOREVER


@given(st.one_of(st.integers(), st.floats(allow_nan=False)))
def test_keep_alive_numbers_never_wrap_round(value: float) -> None:
    nanoseconds = parse_keep_alive(value)
    assert type(nanoseconds) is int
    assert 0 <= nanoseconds <= FOREVER
    if value < 0:
        assert nanoseconds == FOREVER
