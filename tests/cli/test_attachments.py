"""Pictures and sounds named in a message."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from trio_ollama.cli.attachments import LARGEST, attach
from trio_ollama.cli.client import ClientError

PNG = b"\x89PNG\r\n\x1a\nrest"
JPEG = b"\xff\xd8\xffrest"
WEBP = b"RIFF\x04\x00\x00\x00WEBP"
WAV = b"RIFF\x04\x00\x00\x00WAVE"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory and home, with `cat.png`, `a dog.jpg`, `b.webp` and `s.wav`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, data in {"cat.png": PNG, "a dog.jpg": JPEG, "b.webp": WEBP, "s.wav": WAV}.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def decoded(files: list[str]) -> list[bytes]:
    return [base64.b64decode(file) for file in files]


@pytest.mark.parametrize(
    ("text", "rest", "name"),
    [
        ("what is in ./cat.png?", "what is in ?", "./cat.png"),
        ("cat.png", "", "cat.png"),
        ("~/cat.png shows", "shows", "~/cat.png"),
        ("look (cat.png), please", "look (), please", "cat.png"),
        ("'cat.png' shows", "shows", "cat.png"),
        (r"./a\ dog.jpg shows", "shows", "./a dog.jpg"),
        ('"a dog.jpg" shows', "shows", "a dog.jpg"),
    ],
)
def test_ways_to_write_a_path(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, rest: str, name: str
) -> None:
    left, files = attach(text)
    assert left == rest
    assert decoded(files) == [JPEG if "dog" in name else PNG]
    assert capsys.readouterr().err == f"Added image '{name}'\n"


def test_an_absolute_path(folder: Path) -> None:
    assert decoded(attach(f"{folder}/cat.png what?")[1]) == [PNG]


def test_several_of_all_kinds_in_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, files = attach("compare b.webp with ./s.wav and CAT.PNG")
    assert left == "compare  with  and CAT.PNG"  # names are as the file system has them
    assert decoded(files) == [WEBP, WAV]
    assert capsys.readouterr().err == "Added image 'b.webp'\nAdded audio './s.wav'\n"


def test_what_is_not_there_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("see http://host/cat2.png", "rename x.png", "the .png format", "cat.pngs", f"{'x' * 5000}.png"):
        assert attach(text) == (text, [])
    assert capsys.readouterr().err == ""
    assert attach("see ./none.png!") == ("see ./none.png!", [])
    assert capsys.readouterr().err == "There is no file './none.png': it stays in the text.\n"


def test_other_content_is_refused(folder: Path) -> None:
    (folder / "fake.png").write_bytes(b"hello")
    with pytest.raises(ClientError, match=r"^fake.png holds neither a JPEG, PNG or WebP image nor a WAV sound$"):
        attach("fake.png")


def test_a_file_that_is_too_large(folder: Path) -> None:
    with (folder / "big.png").open("wb") as file:
        file.write(PNG)
        file.truncate(LARGEST + 1)
    with pytest.raises(ClientError, match=r"^big.png is too large: at most 100 MB can be sent along$"):
        attach("big.png")


def test_a_file_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    with pytest.raises(ClientError, match=r"^cat.png: Permission denied$"):
        attach("cat.png")
