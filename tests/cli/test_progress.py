"""Bars and spinners on a terminal, for any width; plain lines elsewhere."""

from __future__ import annotations

import io
import itertools
import os
import pty
import subprocess
import sys
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.support.fake_ollama import Answer, FakeOllama
from tests.support.screen import screen
from trio_ollama.cli.bars import Bar, Display, Spinner, remaining

LABEL = "pulling 0123456789ab"
FULL = "█" * 50


def bar(completed: int, total: int, seconds: float = 4.0) -> Bar:
    """That many bytes, evenly, within so many seconds from 0 on."""
    made = Bar(LABEL, 0, total, 0.0)
    for step in range(1, 41):
        made.update(completed * step // 40, total, seconds * step / 40)
    return made


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (120, f"{LABEL}:  25% ▕{'█' * 12}{' ' * 38}▏     250 MB/1 GB   62 MB/s    12s"),
        (80, f"{LABEL}:  25% ▕████              ▏     250 MB/1 GB   62 MB/s    12s"),
        (69, f"{LABEL}:  25% ▕███           ▏     250 MB/1 GB   62 MB/s"),
        (57, f"{LABEL}:  25% ▕███         ▏     250 MB/1 GB"),
        (45, f"{LABEL}:  25% ▕████            ▏"),
        (37, f"{LABEL}:  25% ▕██      ▏"),
        (36, f"{LABEL}:  25%"),
        (20, "pulling 012345678..."),
        (2, ".."),
    ],
)
def test_a_narrow_terminal_goes_without_the_last_parts(width: int, text: str) -> None:
    assert bar(250_000_000, 1_000_000_000).text(width, 4.0) == text


def test_no_line_is_too_long_for_its_terminal() -> None:
    wide = "uploading 模型.gguf"
    lines = (bar(999_900_000, 999_999_999), Bar(wide, 0, 10, 0.0), Bar(wide, 10, 10, 0.0), Spinner(wide))
    for line, width, ascii in itertools.product(lines, range(1, 130), (False, True)):
        assert cell_len(line.text(width, 4.0, ascii=ascii)) <= width


def test_what_is_whole_shows_its_size_and_as_long_a_bar() -> None:
    assert bar(1429, 1429).text(120, 4.0) == f"{LABEL}: 100% ▕{FULL}▏ 1.4 KB"
    assert Bar(LABEL, 0, 0, 0.0).text(120, 4.0) == f"{LABEL}: 100% ▕{FULL}▏ 0 B"  # an empty file
    assert bar(250_000_000, 1_000_000_000).last(53, 9.0) == f"{LABEL}:  25% ▕██      ▏     250 MB/1 GB"


def test_terminals_that_know_ascii_only() -> None:
    assert bar(250_000_000, 1_000_000_000).text(45, 4.0, ascii=True) == f"{LABEL}:  25% [####            ]"
    assert Spinner("writing manifest").text(45, 0.15, ascii=True) == "writing manifest \\"
    assert Spinner("writing manifest").text(45, 0.15) == "writing manifest ⠙"


def test_almost_is_not_all() -> None:
    assert ": 99% " not in (line := bar(999_999_999, 1_000_000_000).text(120, 4.0))
    assert ":  99% " in line
    assert f"{'█' * 49} " in line


def test_a_speed_is_that_of_late() -> None:
    made = Bar(LABEL, 500, 10_000, 0.0)  # the first 500 had come earlier: no speed
    assert made.speed(0.3) is None
    made.update(600, 10_000, 1.0)
    assert made.speed(1.0) == 100
    for second in range(2, 12):
        made.update(600 + 200 * second, 10_000, float(second))
    assert made.speed(11.0) == 200
    assert made.speed(15.0) < 140  # nothing has come since
    made.update(0, 10_000, 16.0)  # what came was wrong and is fetched again
    assert made.speed(16.0) == 0
    assert made.text(120, 16.0).endswith("0 B/10 KB     0 B/s")


def test_speeds_remember_little() -> None:
    made = Bar(LABEL, 0, 10**9, 0.0)
    for step in range(20_000):
        made.update(step * 1000, 10**9, step / 1000)
    assert len(made._samples) < 40
    assert made.speed(20.0) == pytest.approx(1_000_000, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1s"), (26, "26s"), (59.5, "1m00s"), (185, "3m05s"), (7500, "2h05m"), (360_000, ""), (1e12, "")],
)
def test_time_to_go(seconds: float, text: str) -> None:
    assert remaining(seconds) == text


OBJECTS: list[dict[str, Any]] = [
    {"status": "pulling manifest"},
    {"status": LABEL, "digest": "sha256:0", "total": 1_000_000},
    {"status": LABEL, "digest": "sha256:0", "total": 1_000_000, "completed": 400_000},
    {"status": LABEL, "digest": "sha256:0", "total": 1_000_000, "completed": 1_000_000},
    {"status": "pulling ba9876543210", "digest": "sha256:1", "total": 12, "completed": 12},
    {"status": "verifying sha256 digest"},
    {"status": "success"},
]
BAR = 15
"""Cells of it on a terminal of 80."""
STAYS = [
    "pulling manifest",
    f"{LABEL}: 100% ▕{'█' * BAR}▏ 1 MB",
    f"pulling ba9876543210: 100% ▕{'█' * BAR}▏ 12 B",
    "verifying sha256 digest",
    "success",
]


def terminal(height: int = 24) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, height=height)


def drawn(objects: list[dict[str, Any]], **options: int) -> list[str]:
    console = terminal(**options)
    assert isinstance(console.file, io.StringIO)
    with Display(console, clock=lambda: 0.0) as display:
        for each in objects:
            display.show(each)
    return screen(console.file.getvalue())


def test_lines_stay_once_they_are_done() -> None:
    assert drawn(OBJECTS) == STAYS


def test_what_was_broken_off_stays_as_it_was() -> None:
    assert drawn(OBJECTS[:3]) == ["pulling manifest", f"{LABEL}:  40% ▕██████         ▏     400 KB/1 MB"]


def test_several_at_once_stay_in_order() -> None:
    both = [OBJECTS[1], {"status": "pulling b", "digest": "sha256:1", "total": 100}, OBJECTS[3]]
    ends = {"status": "pulling b", "digest": "sha256:1", "total": 100, "completed": 100}
    lines = drawn([*both, ends, {"status": "success"}])
    assert [line.split(":")[0] for line in lines] == [LABEL, "pulling b", "success"]


def blob(number: int, completed: int) -> dict[str, Any]:
    return {"status": f"pulling {number}", "digest": f"sha256:{number}", "total": 100, "completed": completed}


def test_more_at_once_than_the_terminal_has_lines() -> None:
    assert [line.split(":")[0] for line in drawn([blob(n, 0) for n in range(30)], height=5)] == [
        f"pulling {n}" for n in range(30)
    ]
    with Display(terminal(height=5), clock=lambda: 0.0) as display:
        for number in range(30):
            display.show(blob(number, 0))
        assert [line.split(":")[0] for line in display._drawn().plain.splitlines()] == [
            f"pulling {n}" for n in range(26, 30)
        ]


def test_what_is_done_is_written_at_once_and_the_cursor_stays() -> None:
    console = terminal(height=5)
    assert isinstance(console.file, io.StringIO)
    with Display(console, clock=lambda: 0.0) as display:
        for number in range(30):
            display.show(blob(number, 100))
        display.show(blob(99, 40))
        display.show({"status": "verifying sha256 digest"})
        text = console.file.getvalue()
        assert text.rpartition("\x1b[?25")[2][0] == "h"
        written = [line.split(":")[0] for line in screen(text)]
    assert written[:31] == [f"pulling {n}" for n in [*range(30), 99]]


def test_objects_of_no_use_are_no_trouble() -> None:
    assert drawn([{}, {"status": ""}, {"status": "x", "completed": 3}, {"status": "y", "total": 5, "completed": None}])


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_real_terminal(server: FakeOllama, term: str) -> None:
    server.answers["POST /api/pull"] = Answer(lines=OBJECTS)
    control, terminal = pty.openpty()
    environment = os.environ | {"TERM": term, "COLUMNS": "80", "PYTHONUTF8": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "trio_ollama.cli", "pull", "smollm2"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=environment,
    ) as child:
        os.close(terminal)
        raw = b""
        try:
            while piece := os.read(control, 65536):
                raw += piece
        except OSError:
            pass  # so a terminal whose other end is closed says that this is all
        finally:
            os.close(control)
        assert child.stdout is not None
        assert child.stdout.read() == b""
    assert child.returncode == 0
    text = raw.decode()
    assert ("\x1b" in text) == (term == "xterm")
    assert screen(text) == (STAYS if term == "xterm" else [line.split(":")[0] for line in STAYS])
