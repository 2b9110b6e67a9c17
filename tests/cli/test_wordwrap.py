"""Lines break between words, whatever the pieces in which the text comes."""

from __future__ import annotations

import random
import re

import pytest
from rich.cells import cell_len

from trio_ollama.cli.wordwrap import WordWrap

ERASE = re.compile(r"\x1b\[(\d+)D\x1b\[K")


def screen(written: str) -> list[str]:
    """The lines on a terminal wide enough, after erasing what is to be erased."""
    lines = [""]
    while written:
        if found := ERASE.match(written):
            cells = int(found[1])
            while cells > 0:
                cells -= cell_len(lines[-1][-1])
                lines[-1] = lines[-1][:-1]
            assert cells == 0
            written = written[found.end() :]
            continue
        if written[0] == "\n":
            lines.append("")
        else:
            lines[-1] += written[0]
        written = written[1:]
    return [line.rstrip() for line in lines]  # nobody sees the blank before a word that has moved


def width(line: str) -> int:
    """In cells, with tabs as a terminal sets them."""
    cells = 0
    for part in re.findall("\t|[^\t]+", line):
        cells = (cells // 8 + 1) * 8 if part == "\t" else cells + cell_len(part)
    return cells


def wrapped(text: str, columns: int, size: int = 1) -> list[str]:
    wrap = WordWrap(lambda: columns)
    return screen("".join(wrap.feed(text[at : at + size]) for at in range(0, len(text), size)))


def test_lines_break_between_words() -> None:
    assert wrapped("one two three four five", 15) == ["one two three", "four five"]
    assert wrapped("one two three\nfour", 15) == ["one two three", "four"]


def test_a_word_that_fits_exactly_stays() -> None:
    # The last column stays free.
    assert wrapped("one two three4", 15) == ["one two three4"]
    assert wrapped("one two three45", 15) == ["one two", "three45"]


def test_a_blank_at_the_end_of_a_line_is_its_end() -> None:
    assert wrapped("one two three4 five", 15) == ["one two three4", "five"]
    assert wrapped("one two three4   five", 15) == ["one two three4", "five"]
    assert wrapped("one two three4  \nfive", 15) == ["one two three4", "five"]


def test_a_word_longer_than_a_line_is_cut() -> None:
    assert wrapped("a " + "x" * 30, 15) == ["a", "x" * 14, "x" * 14, "xx"]


def test_indentation_stays() -> None:
    assert wrapped("    def f():\n\treturn 1", 40) == ["    def f():", "\treturn 1"]
    assert wrapped("\tabcdef ghij", 15) == ["\tabcdef", "ghij"]  # the tab goes to column 8


def test_wide_characters_take_two_columns_and_part_anywhere() -> None:
    assert wrapped("你好世界你好世界", 13) == ["你好世界你好", "世界"]
    assert wrapped("ab你好世界你好", 13) == ["ab你好世界你", "好"]


def test_no_line_begins_with_a_closing_mark() -> None:
    assert wrapped("你好世界你好。世", 13) == ["你好世界你", "好。世"]


def test_marks_that_combine_stay_with_their_letter() -> None:
    assert wrapped("e\u0301" * 20, 15) == ["e\u0301" * 14, "e\u0301" * 6]


def test_a_joined_emoji_is_not_torn_apart() -> None:
    family = "👨\u200d👩\u200d👧"
    lines = wrapped(f"aaaaaaaaaaaa {family}", 15)
    assert lines == ["aaaaaaaaaaaa", family] or lines == [f"aaaaaaaaaaaa {family}"]


def test_a_narrow_terminal_is_left_alone() -> None:
    assert wrapped("one two three four", 8) == ["one two three four"]


def test_the_width_may_change() -> None:
    columns = 40
    wrap = WordWrap(lambda: columns)
    text = wrap.feed("one two three four ")
    columns = 15
    assert screen(text + wrap.feed("five six seven")) == ["one two three four", "five six seven"]


@pytest.mark.parametrize("seed", range(20))
def test_pieces_make_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    text = "".join(
        rng.choice(["a", "bc", " ", "  ", "\n", "\t", "你", "。", "longerword", "e\u0301"]) for _ in range(120)
    )
    columns = rng.randint(12, 40)
    one = wrapped(text, columns)
    assert wrapped(text, columns, size=rng.randint(2, 9)) == one == wrapped(text, columns, size=len(text))
    for line in one:
        assert width(line) < columns
    # Nothing but blanks at the ends of lines is lost.
    assert "".join("".join(one).split()) == "".join(text.split())
