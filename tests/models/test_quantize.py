"""Models with fewer bits: which tensors get which type, and what becomes of their values."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.support.store_fixture import OllamaStore
from trio_ollama.models import quantize as quantizing
from trio_ollama.models import quantize_child
from trio_ollama.models.create import CreateRequest, Progress, create
from trio_ollama.models.errors import CreateError, ModelsError
from trio_ollama.models.gguf import read_layout, read_metadata
from trio_ollama.models.quantization import MIXTURES, types_of
from trio_ollama.models.store import Store

LAYERS, WIDTH = 8, 256
NORMS = ("output_norm.weight", *(f"blk.{layer}.attn_norm.weight" for layer in range(LAYERS)))
MATRICES = (
    *("token_embd.weight", "output.weight"),
    *(f"blk.{layer}.{part}.weight" for layer in range(LAYERS) for part in ("attn_q", "attn_v", "ffn_down")),
)


def write(path: Path, kind: type[np.floating[Any]] = np.float16, *, width: int = WIDTH, tied: bool = False) -> bytes:
    """A file with the tensors of a llama, which nobody could load."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(int(gguf.LlamaFileType.MOSTLY_F16 if kind is np.float16 else gguf.LlamaFileType.ALL_F32))
    writer.add_string("kept", "as it is")
    values = np.random.default_rng(1)
    for name in MATRICES:
        if not tied or name != "output.weight":
            writer.add_tensor(name, values.standard_normal((12, width)).astype(kind))
    for name in NORMS:
        writer.add_tensor(name, values.standard_normal(width).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def run(store: Store, **fields: Any) -> list[Progress]:
    return list(create(store, CreateRequest(**fields)))


@pytest.mark.parametrize("name", MIXTURES)
def test_values_stay_what_they_were_but_for_a_little(
    name: str, theirs: OllamaStore, store: Store, tmp_path: Path
) -> None:
    data = write(tmp_path / "m.gguf")
    steps = run(store, model="m", files={"m.gguf": theirs.blob(data)}, quantize=name.lower())
    statuses = list(dict.fromkeys(step.status for step in steps))
    assert statuses[:3] == ["parsing GGUF", f"quantizing F16 model to {name}", "verifying conversion"]
    last = [step for step in steps if step.status.startswith("quantizing")][-1]
    model = store.resolve("m")
    assert model.weights_path is not None
    assert (last.completed, last.digest) == (last.total, "0" * 19)
    assert last.total == model.weights_path.stat().st_size < len(data)
    metadata = read_metadata(model.weights_path)
    assert (metadata.file_type, model.config.file_type, model.config.model_family) == (name, name, "llama")
    assert (metadata.text("kept"), metadata.integer("general.quantization_version")) == ("as it is", 2)
    before = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    after = {tensor.name: tensor for tensor in gguf.GGUFReader(model.weights_path).tensors}
    assert before.keys() == after.keys()
    for tensor in NORMS:
        assert (after[tensor].data == before[tensor].data).all()
    for tensor in MATRICES:
        was = before[tensor].data.astype(np.float32)
        now = gguf.quants.dequantize(after[tensor].data, after[tensor].tensor_type).reshape(was.shape)
        assert float(np.abs(now - was).mean()) < 0.15, tensor


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Q8_0", {"output.weight": "Q8_0", "token_embd.weight": "Q8_0", "blk.0.attn_v.weight": "Q8_0"}),
        ("Q4_0", {"output.weight": "Q6_K", "token_embd.weight": "Q4_0", "blk.0.attn_v.weight": "Q4_0"}),
        ("Q4_K_S", {"blk.0.ffn_down.weight": "Q5_K", "blk.1.ffn_down.weight": "Q4_K", "blk.0.attn_q.weight": "Q4_K"}),
        (
            "Q4_K_M",
            {
                "output.weight": "Q6_K",
                "token_embd.weight": "Q4_K",
                **{f"blk.{layer}.attn_v.weight": "Q6_K" for layer in (0, 3, 6, 7)},
                **{f"blk.{layer}.attn_v.weight": "Q4_K" for layer in (1, 2, 4, 5)},
            },
        ),
    ],
)
def test_what_matters_more_gets_more_bits(name: str, expected: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "m.gguf")
    layout = read_layout(tmp_path / "m.gguf")
    kinds = {
        tensor.name: kind.name for tensor, kind in zip(layout.tensors, types_of(layout, MIXTURES[name]), strict=True)
    }
    assert {tensor: kinds[tensor] for tensor in expected} == expected
    assert {kinds[tensor] for tensor in NORMS} == {"F32"}


@pytest.mark.parametrize(("width", "kinds"), [(64, {"Q5_0", "Q8_0", "F32"}), (48, {"F16", "F32"})])
def test_rows_that_blocks_do_not_divide(width: int, kinds: set[str], tmp_path: Path) -> None:
    write(tmp_path / "m.gguf", width=width, tied=True)
    layout = read_layout(tmp_path / "m.gguf")
    found = dict(zip([tensor.name for tensor in layout.tensors], types_of(layout, MIXTURES["Q4_K_M"]), strict=True))
    assert {kind.name for kind in found.values()} == kinds
    if width == 64:
        assert found["token_embd.weight"].name == "Q8_0", "it is the output, too"


def test_from_a_model(theirs: OllamaStore, store: Store, tmp_path: Path) -> None:
    theirs.add("big:x", write(tmp_path / "m.gguf", np.float32), system="s", config={"file_type": "F32"})
    statuses = {step.status for step in run(store, model="small", source="big:x", quantize="Q8_0")}
    assert "quantizing F32 model to Q8_0" in statuses
    small, big = store.resolve("small"), store.resolve("big:x")
    assert (small.system, small.config.file_type, big.config.file_type) == ("s", "Q8_0", "F32")
    assert small.weights_digest != big.weights_digest
    assert small.size < big.size / 3
    with pytest.raises(CreateError, match="quantization is only supported for F16, BF16 and F32 models"):
        run(store, model="smaller", source="small", quantize="Q4_0")


def test_a_draft_alone(theirs: OllamaStore, store: Store, tmp_path: Path) -> None:
    theirs.add("big:x", b"GGUF")
    draft = theirs.blob(write(tmp_path / "d.gguf"))
    run(store, model="m", source="big:x", draft_files={"d.gguf": draft}, draft_quantize="q8_0")
    model = store.resolve("m")
    assert model.draft is not None
    assert read_metadata(model.draft).file_type == "Q8_0"
    assert model.weights_path is not None
    assert model.weights_path.read_bytes() == b"GGUF"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"quantize": "Q9"}, 'unsupported quantization type "Q9": use one of Q4_0, Q4_K_S, Q4_K_M, '),
        ({"draft_quantize": "Q8_0"}, "--draft-quantize requires a DRAFT model"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(
    fields: dict[str, Any], text: str, theirs: OllamaStore, store: Store, tmp_path: Path
) -> None:
    digest = theirs.blob(write(tmp_path / "m.gguf"))
    with pytest.raises(ModelsError) as caught:
        next(create(store, CreateRequest(model="m", files={"m.gguf": digest}, **fields)))
    assert str(caught.value).startswith(text)


def test_without_the_library_it_is_refused_at_once(
    theirs: OllamaStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs.add("m:x", b"GGUF")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CreateError, match="quantizing needs the package xllamacpp"):
        next(create(store, CreateRequest(model="m", source="m:x", quantize="Q8_0")))


def test_a_child_that_fails_says_why(
    theirs: OllamaStore, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "child.py"
    script.write_text("raise MemoryError('there is none')")
    monkeypatch.setattr(quantize_child, "__file__", str(script))
    digest = theirs.blob(write(tmp_path / "m.gguf"))
    before = theirs.files()
    with pytest.raises(CreateError, match=r"^quantizing failed: MemoryError: there is none$"):
        run(store, model="m", files={"m.gguf": digest}, quantize="Q8_0")
    assert theirs.files() == before


def test_whoever_leaves_ends_the_child(
    theirs: OllamaStore, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed and reaped, and leaves nothing, even if it says nothing more."""
    script = tmp_path / "child.py"
    script.write_text("import os, signal\nos.write(1, bytes(1000))\nsignal.pause()\n")
    monkeypatch.setattr(quantize_child, "__file__", str(script))
    begun: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)

    monkeypatch.setattr("subprocess.Popen", Popen)
    monkeypatch.setattr(quantizing, "_PIECE", 1000)
    digest = theirs.blob(write(tmp_path / "m.gguf"))
    before = theirs.files()
    steps = create(store, CreateRequest(model="m", files={"m.gguf": digest}, quantize="Q8_0"))
    while not next(steps).status.startswith("quantizing"):
        pass
    steps.close()
    assert begun[0].returncode == -9
    assert theirs.files() == before
    assert not os.path.exists(f"/proc/{begun[0].pid}")
