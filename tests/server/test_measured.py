"""The file in which it is kept what models have really taken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from trio_ollama.scheduler import Demand, ModelFacts, Observation
from trio_ollama.server.measured import LIMIT, MeasuredFile, feedback_of

SEEN = Observation(4096, 2, 128, "q8_0", 1, 10**10, 11 * 10**9, 3 * 10**8, 4 * 10**8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "blobs").mkdir()
    return tmp_path


def test_what_is_written_is_read_again(root: Path) -> None:
    file = MeasuredFile(root)
    assert file.read() == {}
    file.write({"sha256-aa": [SEEN]})
    assert MeasuredFile(root).read() == {"sha256-aa": [SEEN]}
    assert sorted(path.name for path in root.iterdir()) == ["blobs", "trio-ollama"], "one folder, beside Ollama's own"
    assert [path.name for path in file.path.parent.iterdir()] == ["measured.json"]
    facts = ModelFacts("k", "k", "/blobs/sha256-aa", file_size=1)
    assert feedback_of(root).informed(Demand(facts)).model.observed == (SEEN,)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 1, "models": {"a": [{"num_ctx": "x"}]}}', b"[" * 100_000],
)
def test_a_damaged_file_is_as_good_as_none_and_told_of(
    content: bytes, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = MeasuredFile(root)
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert file.read() == {}
    assert [str(file.path) in record.message for record in caplog.records] == [True]
    file.write({"a": [SEEN]})
    assert file.read() == {"a": [SEEN]}


def test_a_file_of_another_version_or_without_end_is_not_used(root: Path) -> None:
    file = MeasuredFile(root)
    file.path.parent.mkdir()
    file.path.write_bytes(b'{"version": 2, "models": {}}')
    assert file.read() == {}
    with file.path.open("wb") as big:
        big.truncate(LIMIT + 1)
    assert file.read() == {}


def test_no_store_is_made_for_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MeasuredFile(tmp_path / "nowhere").write({"a": [SEEN]})
    assert not (tmp_path / "nowhere").exists()
