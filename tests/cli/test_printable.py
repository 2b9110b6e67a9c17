"""What a terminal is given of a model's text."""

from __future__ import annotations

import pytest

from trio_ollama.cli.printable import Joined, printable


@pytest.mark.parametrize(
    "text",
    ["\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\x9d0;x\x9c", "a\rb", "a\bb", "\x00\x7f"],
    ids=["clear", "title", "C1-clear", "C1-title", "return", "backspace", "nul"],
)
def test_nothing_commands_the_terminal(text: str) -> None:
    left = printable(text)
    assert left.isprintable()
    assert left == "".join(each for each in text if each.isprintable())


def test_text_stays() -> None:
    text = "Grüße,\n\t你好 👨\u200d👩\u200d👧 e\u0301 \u00a0"
    assert printable(text) == text


def test_halves_of_a_character_are_joined_over_pieces() -> None:
    joined = Joined()
    assert joined.feed("a\ud83d") == "a"
    assert joined.feed("\ude00b") == "😀b"
    assert joined.feed("\ud83d\ude00") == "😀"
    assert joined.end() == ""


def test_a_half_alone_can_be_encoded() -> None:
    joined = Joined()
    assert joined.feed("\ude00a\ud83db") == "\ufffda\ufffdb"
    assert joined.feed("\ud83d") == ""
    assert joined.end() == "\ufffd"
    assert joined.end() == ""
