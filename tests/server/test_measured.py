"""The file in which it is kept what models have really taken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from trio_ollama.scheduler import Demand, ModelFacts, Observation
from trio_ollama.server.measured import LIMIT, MeasuredFile, feedback_of

SEEN = Observation(4096, 2, 128, "q8_0", 1, 10**10, 11 * 10**9, 3 * 10**8, 4 * 10**8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "trio-ollama"


def test_what_is_written_is_read_again(folder: Path) -> None:
    file = MeasuredFile(folder)
    assert file.read() == {}
    assert not folder.exists()
    file.write({"sha256-aa": [SEEN]})
    assert MeasuredFile(folder).read() == {"sha256-aa": [SEEN]}
    assert [path.name for path in folder.iterdir()] == ["measured.json"]
    facts = ModelFacts("k", "k", "/blobs/sha256-aa", file_size=1)
    assert feedback_of(folder).informed(Demand(facts)).model.observed == (SEEN,)


def test_without_a_folder_nothing_is_kept() -> None:
    assert not feedback_of(None).lasting


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 1, "models": {"a": [{"num_ctx": "x"}]}}', b"[" * 100_000],
)
def test_a_damaged_file_is_as_good_as_none_and_told_of(
    content: bytes, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = MeasuredFile(folder)
    folder.mkdir(parents=True)
    file.path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert file.read() == {}
    assert [str(file.path) in record.message for record in caplog.records] == [True]
    file.write({"a": [SEEN]})
    assert file.read() == {"a": [SEEN]}


def test_a_file_of_another_version_or_without_end_is_not_used(folder: Path) -> None:
    file = MeasuredFile(folder)
    folder.mkdir(parents=True)
    file.path.write_bytes(b'{"version": 2, "models": {}}')
    assert file.read() == {}
    with file.path.open("wb") as big:
        big.truncate(LIMIT + 1)
    assert file.read() == {}
