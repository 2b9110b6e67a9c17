"""The texts of values, one table per kind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trio_ollama.cli import format as text

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1500, "1.5 KB"),
        (9_960, "10.0 KB"),
        (10_900, "10 KB"),
        (274_302_450, "274 MB"),
        (4_661_211_808, "4.7 GB"),
        (5_000_000_000, "5 GB"),
        (42_520_397_704, "42 GB"),
        (1_300_000_000_000, "1.3 TB"),
        (5_000_000_000_000_000, "5000 TB"),
    ],
)
def test_sizes_are_decimal_with_at_most_one_decimal(count: int, expected: str) -> None:
    assert text.size(count) == expected


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0"),
        (999, "999"),
        (12_400, "12K"),
        (22_000_000, "22M"),
        (134_515_008, "134.52M"),
        (7_000_000_000, "7B"),
        (8_030_261_248, "8.0B"),
        (70_553_706_496, "70.6B"),
    ],
)
def test_counts(count: int, expected: str) -> None:
    assert text.count(count) == expected


@pytest.mark.parametrize(
    ("total", "on_gpu", "expected"),
    [
        (100, 0, "100% CPU"),
        (0, 0, "100% CPU"),
        (100, 100, "100% GPU"),
        (100, 101, "Unknown"),
        (0, 1, "Unknown"),
        (100, 73, "27%/73% CPU/GPU"),
        (1000, 5, "100%/0% CPU/GPU"),
        (200, 175, "13%/87% CPU/GPU"),
    ],
)
def test_processor_says_where_the_bytes_are(total: int, on_gpu: int, expected: str) -> None:
    assert text.processor(total, on_gpu) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.4, "Less than a second"),
        (1.9, "1 second"),
        (2, "2 seconds"),
        (59.9, "59 seconds"),
        (MINUTE, "About a minute"),
        (2 * MINUTE, "2 minutes"),
        (59.9 * MINUTE, "59 minutes"),
        (HOUR, "About an hour"),
        (1.5 * HOUR, "2 hours"),
        (47.4 * HOUR, "47 hours"),
        (2 * DAY, "2 days"),
        (13.9 * DAY, "13 days"),
        (14 * DAY, "2 weeks"),
        (59.9 * DAY, "8 weeks"),
        (60 * DAY, "2 months"),
        (729 * DAY, "24 months"),
        (730 * DAY, "2 years"),
    ],
)
def test_times_are_relative(seconds: float, expected: str) -> None:
    span = timedelta(seconds=seconds)
    assert text.relative_time(NOW - span, NOW) == f"{expected} ago"
    if seconds:
        assert text.relative_time(NOW + span, NOW) == f"{expected} from now"


def test_times_that_are_no_times() -> None:
    assert text.relative_time(None, NOW) == "Never"
    assert text.relative_time(NOW + timedelta(days=21 * 365), NOW) == "Forever"
    assert text.until(NOW + timedelta(days=292 * 365), NOW) == "Forever"
    assert text.until(NOW - timedelta(seconds=1), NOW) == "Stopping..."
    assert text.until(NOW + timedelta(minutes=4), NOW) == "4 minutes from now"


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, "0s"),
        (17, "17ns"),
        (12_500, "12.5µs"),
        (340_512_000, "340.512ms"),
        (1_000_000_000, "1s"),
        (1_234_567_891, "1.234567891s"),
        (62_500_000_000, "1m2.5s"),
        (3_600_000_000_000, "1h0m0s"),
        (-1_500_000_000, "-1.5s"),
    ],
)
def test_durations(nanoseconds: int, expected: str) -> None:
    assert text.duration(nanoseconds) == expected


def test_columns_are_four_spaces_apart_without_blanks_at_the_end() -> None:
    assert text.columns([("NAME", "ID"), ("a-long-name", "1")]) == "NAME           ID\na-long-name    1\n"
    assert text.columns([("a", "b")], indent="  ") == "  a    b\n"
    assert text.columns([]) == ""


def test_ids_are_twelve_digits() -> None:
    assert text.short_id("sha256:" + "0123456789abcdef" * 4) == "0123456789ab"
    assert text.short_id("0123456789abcdef" * 4) == "0123456789ab"
