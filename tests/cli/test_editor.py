"""The line editor, key by key, without a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from trio_ollama.cli.chat.editor import Editor
from trio_ollama.cli.chat.history import HistoryFile
from trio_ollama.cli.chat.words import completions

ENTER, UP, TAB, ESCAPE = "\r", "\x1b[A", "\t", "\x1b"


def ctrl(letter: str) -> str:
    return chr(ord(letter) - ord("a") + 1)


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as pipe:
        yield pipe


@pytest.fixture
def editor(keys: PipeInput, tmp_path: Path) -> Editor:
    return Editor(HistoryFile(tmp_path / "history"), input=keys, output=DummyOutput())


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("hi" + ENTER, "hi"),
        (ENTER, ""),
        ('"""one' + ENTER + 'two"""' + ENTER, '"""one\ntwo"""'),
        ('/set system """one' + ENTER + 'two"""' + ENTER, '/set system """one\ntwo"""'),
        ('"""' + ENTER + ENTER + '"""  ' + ENTER, '"""\n\n"""  '),
        ('"""one line"""' + ENTER, '"""one line"""'),
        ("one" + ESCAPE + ENTER + "two" + ENTER, "one\ntwo"),
        (paste("one\r\ntwo\n\tthree") + ENTER, "one\ntwo\n\tthree"),
        (paste("one\n") + "two" + ENTER, "one\ntwo"),
        ("one two" + ctrl("w") + "three" + ENTER, "one three"),
        ("two" + ctrl("a") + "one " + ctrl("e") + "!" + ENTER, "one two!"),
        ("one two" + ctrl("u") + "three" + ENTER, "three"),
        ("one two" + ctrl("a") + ctrl("k") + "three" + ENTER, "three"),
        ("one two" + ESCAPE + "b" + "and " + ESCAPE + "f" + "!" + ENTER, "one and two!"),
        ("thrown away" + ctrl("c") + "kept" + ENTER, "kept"),
        ('"""open' + ENTER + ctrl("c") + "kept" + ENTER, "kept"),
        ("ac" + "\x1b[D" + "b" + ctrl("d") + ENTER, "ab"),  # there, it deletes
        ("你好 😀" + ENTER, "你好 😀"),
        ("/set par" + TAB + "tem" + TAB + "1" + ENTER, "/set parameter temperature 1"),
        ("no" + TAB + "command" + ENTER, "nocommand"),
    ],
)
def test_keys(keys: PipeInput, editor: Editor, typed: str, message: str) -> None:
    keys.send_text(typed)
    assert editor.read() == message


def test_what_is_typed_ahead_waits(keys: PipeInput, editor: Editor) -> None:
    keys.send_text("one" + ENTER + "two" + ENTER)
    assert [editor.read(), editor.read()] == ["one", "two"]


def test_leaving(keys: PipeInput, editor: Editor) -> None:
    keys.send_text(ctrl("c"))
    with pytest.raises(KeyboardInterrupt):
        editor.read()
    keys.send_text(ctrl("d"))
    with pytest.raises(EOFError):
        editor.read()


def test_bytes_that_are_no_text(keys: PipeInput, editor: Editor) -> None:
    keys.send_bytes(b"a\xffb\r")
    assert editor.read().encode() == "a\ufffdb".encode()


def test_history_over_two_sessions(keys: PipeInput, editor: Editor, tmp_path: Path) -> None:
    keys.send_text("one" + ENTER + paste("two\nlines") + ENTER)
    editor.read()
    editor.read()
    later = Editor(HistoryFile(tmp_path / "history"), input=keys, output=DummyOutput())
    keys.send_text(UP + ENTER)
    assert later.read() == '"""two\nlines"""'
    keys.send_text(ctrl("r") + "on" + ENTER + ENTER)
    assert later.read() == "one"


def test_without_a_history(keys: PipeInput, editor: Editor, tmp_path: Path) -> None:
    editor.remembers = False
    keys.send_text("secret" + ENTER)
    editor.read()
    editor.remembers = True
    keys.send_text("known" + ENTER)
    editor.read()
    keys.send_text(UP + UP + ENTER)
    assert editor.read() == "known"
    assert (tmp_path / "history").read_text() == "known\n"

    fileless = Editor(None, input=keys, output=DummyOutput())
    for typed in ("session", UP):
        keys.send_text(typed + ENTER)
        assert fileless.read() == "session"
    assert (tmp_path / "history").read_text() == "known\n"


def test_an_editor_of_ones_own(
    keys: PipeInput,
    editor: Editor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = tmp_path / "my editor.py"
    script.write_text("import sys; path = sys.argv[1]; open(path, 'a').write(' and\\nmore\\n')")
    monkeypatch.setenv("OLLAMA_EDITOR", f"{sys.executable} '{script}'")
    monkeypatch.setenv("EDITOR", "false")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    keys.send_text("this" + ctrl("g") + "!" + ENTER)
    assert editor.read() == "this and\nmore!"

    monkeypatch.setenv("OLLAMA_EDITOR", " ")
    monkeypatch.setenv("VISUAL", "no-such-editor")
    keys.send_text("this" + ctrl("g") + "!" + ENTER)
    assert editor.read() == "this!"
    assert capsys.readouterr().err == (
        "Error: no-such-editor: No such file or directory; name another editor in OLLAMA_EDITOR\n"
    )
    monkeypatch.delenv("VISUAL")
    keys.send_text("this" + ctrl("g") + "!" + ENTER)
    assert editor.read() == "this!"
    assert capsys.readouterr().err == "Error: false ended with status 1; the message is as it was\n"
    assert list(tmp_path.glob("message-*")) == []


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("/s", ["/set", "/show", "/save"]),
        ("/set no", ["nohistory", "nowordwrap", "noformat", "nothink"]),
        ("/show s", ["system"]),
        ("/set think ", ["low", "medium", "high", "max"]),
        ("/? sho", ["show", "shortcuts"]),
        ("hello /s", []),
        ("", []),
        ("/load x", []),
    ],
)
def test_completions(typed: str, words: list[str]) -> None:
    assert list(completions(typed)) == words
