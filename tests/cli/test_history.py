"""The history file: Ollama's format, whole messages, bounds, and no harm from a file that cannot be used."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trio_ollama.cli.chat.history import LONGEST, MOST, READ, HistoryFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".ollama" / "history"


def test_what_was_typed_comes_back(path: Path) -> None:
    file = HistoryFile(path)
    assert file.read() == []
    for entry in ("one", '"""two\nlines"""', "pasted\ntext", "/bye"):
        file.append(entry)
    assert path.read_text() == 'one\n"""two\nlines"""\n"""pasted\ntext"""\n/bye\n'
    # A pasted text means the same with quotes as without.
    assert HistoryFile(path).read() == ["one", '"""two\nlines"""', '"""pasted\ntext"""', "/bye"]


def test_nobody_else_may_read_it(path: Path) -> None:
    HistoryFile(path).append("secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_of_ollamas(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('hello\n\n/set system """\nbe kind"""\n"""never closed\nagain\n')
    assert HistoryFile(path).read() == ["hello", '/set system """\nbe kind"""', '"""never closed', "again"]


def test_two_sessions_lose_nothing(path: Path) -> None:
    one, two = HistoryFile(path), HistoryFile(path)
    one.append("a")
    two.append("b")
    one.append("c")
    assert HistoryFile(path).read() == ["a", "b", "c"]


def test_the_file_is_bounded(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("".join(f"line {number}\n" for number in range(2 * MOST + 1)))
    entries = HistoryFile(path).read()
    assert entries == [f"line {number}" for number in range(MOST + 1, 2 * MOST + 1)]
    assert path.read_text() == "".join(f"{entry}\n" for entry in entries)
    assert [file.name for file in path.parent.iterdir()] == ["history"]


def test_only_the_end_of_a_huge_file_is_read(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("x" * 2 * READ + "\nlast\n")
    assert HistoryFile(path).read() == ["last"]
    assert path.read_text() == "last\n"


def test_a_huge_entry_is_not_kept(path: Path) -> None:
    file = HistoryFile(path)
    file.append("x" * LONGEST)
    file.append("small")
    assert HistoryFile(path).read() == ["small"]


def test_bytes_that_are_no_text(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"a\xff\nb\n")
    assert HistoryFile(path).read() == ["a\ufffd", "b"]
    HistoryFile(path).append("\ud83d")
    assert HistoryFile(path).read()[-1] == "?"


def test_a_file_that_cannot_be_used_is_one_warning(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.mkdir(parents=True)
    file = HistoryFile(path)
    assert file.read() == []
    file.append("a")
    file.append("b")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"Warning: {path}: Is a directory; what you type is not kept\n"
