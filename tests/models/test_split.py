"""Models that come in several files become one blob again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gguf
import pytest

from tests.support.raw_gguf import RawTensor, raw_gguf
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf
from trio_ollama.models.create import CreateRequest, create
from trio_ollama.models.details import human_count
from trio_ollama.models.errors import CreateError
from trio_ollama.models.gguf import read_layout, read_metadata
from trio_ollama.models.store import Store


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in one file."""
    return write_tiny_gguf(tmp_path_factory.mktemp("whole") / "tiny.gguf")


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same in three."""
    folder = tmp_path_factory.mktemp("pieces")
    write_tiny_gguf(folder / "tiny.gguf", split=8)
    return sorted(folder.iterdir())


def test_a_split_model_is_what_it_was_before(
    whole: Path, pieces: list[Path], theirs: OllamaStore, store: Store
) -> None:
    files = {path.name: theirs.blob(path.read_bytes()) for path in reversed(pieces)}
    assert len(files) == 3
    steps = list(create(store, CreateRequest(model="m", files=files)))
    statuses = [step.status for step in steps]
    assert statuses[:4] == ["parsing GGUF"] * 3 + ["validating GGUF model"]
    merging = [step for step in steps if step.status == "merging split GGUF"]
    path = store.resolve("m").weights_path
    assert path is not None
    assert merging[-1].completed == merging[-1].total == path.stat().st_size
    made, meant = read_metadata(path), read_metadata(whole)
    assert made.values == meant.values
    assert made.tensors == meant.tensors
    assert store.resolve("m").config.model_type == human_count(meant.parameter_count)
    weights = {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(path).tensors}
    assert weights == {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(whole).tensors}


def _part(number: int, tensors: list[RawTensor], weights: bytes, **more: Any) -> bytes:
    return raw_gguf({"split.count": 2, "split.no": number} | more, tensors) + weights


def test_weights_of_any_type_are_only_moved(theirs: OllamaStore, store: Store) -> None:
    """A type that is newer than this program has no size that is known here; a part may end in any way."""
    tensors: list[RawTensor] = [("a", (7,), 999, 0), ("b", (2,), 0, 32)]
    first = _part(0, tensors, b"a".ljust(32, b"a") + b"bbbbbbbb junk behind it", x="kept")
    second = _part(1, [("c", (3,), 999, 0)], b"the rest")
    files = {"m-00001-of-00002.gguf": theirs.blob(first), "m-00002-of-00002.gguf": theirs.blob(second)}
    list(create(store, CreateRequest(model="m", files=files)))
    path = store.resolve("m").weights_path
    assert path is not None
    layout, data = read_layout(path), path.read_bytes()
    assert read_metadata(path).text("x") == "kept"
    assert not any(key.startswith("split.") for key in layout.values)
    assert [tensor[:4] for tensor in layout.tensors] == [("a", (7,), 999, 0), ("b", (2,), 0, 32), ("c", (3,), 999, 64)]
    assert data[layout.start :] == b"a" * 32 + b"bbbbbbbb".ljust(32, b"\0") + b"the rest".ljust(32, b"\0")


def test_parts_that_do_not_fit_leave_nothing(theirs: OllamaStore, store: Store) -> None:
    parts = [_part(number, [("a", (4, 2), 0, 0)], bytes(32)) for number in (0, 1)]
    files = {f"m-0000{number}-of-00002.gguf": theirs.blob(part) for number, part in enumerate(parts, start=1)}
    before = theirs.files()
    with pytest.raises(CreateError, match="two parts of the split GGUF have the same tensor"):
        list(create(store, CreateRequest(model="m", files=files)))
    assert theirs.files() == before


def test_whoever_leaves_a_merge_leaves_nothing(pieces: list[Path], theirs: OllamaStore, store: Store) -> None:
    files = {path.name: theirs.blob(path.read_bytes()) for path in pieces}
    before = theirs.files()
    steps = create(store, CreateRequest(model="m", files=files))
    while next(steps).status != "merging split GGUF":
        pass
    assert len(os.listdir(theirs.blobs)) == 4
    steps.close()
    assert theirs.files() == before


@pytest.mark.parametrize("field", ["files", "draft_files"])
def test_drafts_may_be_split_too(
    field: str, pieces: list[Path], whole: Path, theirs: OllamaStore, store: Store
) -> None:
    files = {path.name: theirs.blob(path.read_bytes()) for path in pieces}
    request = CreateRequest(model="m", files=files)
    if field == "draft_files":
        theirs.add("base:latest", whole.read_bytes())
        request = CreateRequest(model="m", source="base", draft_files=files)
    list(create(store, request))
    model = store.resolve("m")
    path = model.weights_path if field == "files" else model.draft
    assert path is not None
    assert read_metadata(path).tensor_count == read_metadata(whole).tensor_count
