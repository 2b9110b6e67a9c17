"""Reading headers: right ones quickly, wrong ones safely."""

from __future__ import annotations

import os
import random
import statistics
import struct
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.raw_gguf import array, raw_gguf, string
from tests.support.tiny_gguf import VOCABULARY, write_tiny_gguf
from trio_ollama.models import gguf as reader
from trio_ollama.models import gguf_constants
from trio_ollama.models.digest import Digest
from trio_ollama.models.errors import InvalidGgufError
from trio_ollama.models.gguf import read_metadata
from trio_ollama.models.metadata import SkippedArray, Tensor
from trio_ollama.models.metadata_cache import MetadataCache


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "x.gguf"


def test_a_real_file_reads_as_the_package_reads_it(tiny: Path) -> None:
    metadata = read_metadata(tiny)
    theirs = gguf.GGUFReader(tiny)
    keys = {key for key in theirs.fields if not key.startswith("GGUF.")}
    assert set(metadata.values) == keys
    for key in keys:
        expected = theirs.fields[key].contents()
        ours = metadata.values[key]
        assert (list(ours) if isinstance(ours, tuple) else ours) == expected, key
    assert [(tensor.name, tensor.type, tensor.shape) for tensor in metadata.tensors] == [
        (tensor.name, tensor.tensor_type.name, tuple(int(size) for size in tensor.shape)) for tensor in theirs.tensors
    ]
    assert metadata.parameter_count == sum(int(tensor.n_elements) for tensor in theirs.tensors)
    assert metadata.tensor_count == len(theirs.tensors)
    assert metadata.file_size == tiny.stat().st_size
    assert metadata.architecture == "llama"
    assert metadata.integer(metadata.arch_key("block_count")) == 2
    assert metadata.file_type == "F32"
    assert metadata.values["tokenizer.ggml.tokens"] == VOCABULARY


def test_every_kind_of_value_is_read(scratch: Path) -> None:
    kinds: dict[str, tuple[int, str, float]] = {
        "u8": (0, "<B", 200),
        "i8": (1, "<b", -3),
        "u16": (2, "<H", 60000),
        "i16": (3, "<h", -300),
    }
    kinds |= {
        "i32": (5, "<i", -70000),
        "u64": (10, "<Q", 1 << 63),
        "i64": (11, "<q", -(1 << 62)),
        "f64": (12, "<d", 0.1),
    }
    values = {key: struct.pack("<I", kind) + struct.pack(form, value) for key, (kind, form, value) in kinds.items()}
    scratch.write_bytes(raw_gguf(values | {"u32": 7, "yes": True, "f32": 0.5, "text": "ä", "empty": array([])}))
    read = read_metadata(scratch).values
    assert {key: read[key] for key in kinds} == {key: value for key, (_, _, value) in kinds.items()}
    assert (read["u32"], read["yes"], read["f32"], read["text"], read["empty"]) == (7, True, 0.5, "ä", ())


def test_bytes_that_are_no_utf8_are_replaced(scratch: Path) -> None:
    scratch.write_bytes(raw_gguf({"bad": struct.pack("<I", 8) + string(b"a\xffb")}))
    assert read_metadata(scratch).text("bad") == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("count", [1023, 1024, 1025, 5000])
def test_long_arrays_are_skipped_unless_asked_for(scratch: Path, count: int) -> None:
    words = [f"word{number}" * (1 + number % 30) for number in range(count)]
    scratch.write_bytes(raw_gguf({"words": words, "numbers": list(range(count)), "after": "still right"}))
    short, full = read_metadata(scratch), read_metadata(scratch, long_arrays=True)
    assert full.values["words"] == tuple(words)
    assert full.values["numbers"] == tuple(range(count))
    for metadata in (short, full):
        assert metadata.text("after") == "still right"
    if count > 1024:
        assert short.values["words"] == short.values["numbers"] == SkippedArray(count)
    else:
        assert short.values == full.values


@pytest.mark.parametrize("seed", range(40))
def test_skipping_agrees_with_reading(scratch: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever lengths the strings have, and wherever the pieces end that are read at a time."""
    own = random.Random(seed)
    monkeypatch.setattr(reader, "_FIRST_READ", own.choice([1, 10, 100, 1000, 5000, 60_000]))
    longest = own.choice([0, 5, 63, 70, 300])
    words = ["\0" * own.randint(0, longest) for _ in range(own.randint(1025, 1600))]
    scratch.write_bytes(raw_gguf({"words": words, "after": "right"}))
    metadata = read_metadata(scratch)
    assert metadata.values["words"] == SkippedArray(len(words))
    assert metadata.text("after") == "right"


def test_a_large_vocabulary_costs_milliseconds(scratch: Path) -> None:
    """150,000 entries with as many merges; 10 to 25 ms when measured, the bound leaves room for a busy machine."""
    words = [f"{number:x}" * (1 + number % 3) for number in range(150_000)]
    scratch.write_bytes(raw_gguf({"tokens": words, "types": [1] * 150_000, "merges": words}))
    spent = []
    for _ in range(5):
        begin = time.process_time()
        read_metadata(scratch)
        spent.append(time.process_time() - begin)
    assert statistics.median(spent) < 0.25


def test_the_header_is_read_without_numpy() -> None:
    """An idle daemon has no use for it: 17 MiB and 0.2 s."""
    code = "import sys, trio_ollama.models.gguf as g; sys.exit('numpy' in sys.modules or 'gguf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_our_constants_are_the_packages() -> None:
    assert {int(kind): sizes for kind, sizes in gguf_constants.GGML_QUANT_SIZES.items()} == {
        int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()
    }


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (0, "F32"),
        (1, "F16"),
        (2, "Q4_0"),
        (15, "Q4_K_M"),
        (32, "BF16"),
        (38, "MXFP4"),
        (1024, "unknown"),
        (999, "unknown"),
    ],
)
def test_file_types_have_upstreams_names(scratch: Path, number: int, name: str) -> None:
    scratch.write_bytes(raw_gguf({"general.file_type": number}))
    assert read_metadata(scratch).file_type == name


def test_tensors_are_described_also_when_their_type_is_unknown(scratch: Path) -> None:
    tensors = [("a", (32, 4), 2, 0), ("v.b", (5,), 0, 96), ("c", (7, 7), 200, 128)]
    scratch.write_bytes(raw_gguf(tensors=tensors, data=200))
    metadata = read_metadata(scratch)
    assert metadata.tensors == (
        Tensor("a", "Q4_0", (32, 4)),
        Tensor("v.b", "F32", (5,)),
        Tensor("c", "unknown", (7, 7)),
    )
    assert metadata.parameter_count == 128 + 5 + 49
    assert metadata.inline_vision


# Wrong files


@pytest.mark.parametrize("data", [b"", b"GG", b"GGML" + bytes(100), b"PK\3\4" + bytes(100), b"FUGG" + bytes(100)])
def test_a_foreign_file_has_the_wrong_magic(scratch: Path, data: bytes) -> None:
    scratch.write_bytes(data)
    with pytest.raises(InvalidGgufError, match=r"^invalid file magic$"):
        read_metadata(scratch)


_HUGE = (1 << 64) - 1
_WRONG = {
    "version 1": raw_gguf(version=1),
    "version 4": raw_gguf(version=4),
    "big endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "too many tensors": b"GGUF" + struct.pack("<IQQ", 3, _HUGE, 0) + bytes(64),
    "too many values": b"GGUF" + struct.pack("<IQQ", 3, 0, _HUGE) + bytes(64),
    "endless key": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, _HUGE) + bytes(64),
    "endless text": raw_gguf({"k": struct.pack("<IQ", 8, _HUGE)}),
    "endless array of texts": raw_gguf({"k": struct.pack("<IIQ", 9, 8, _HUGE)}),
    "endless array of bytes": raw_gguf({"k": struct.pack("<IIQ", 9, 0, _HUGE)}),
    "an endless text in a long array": raw_gguf({"k": struct.pack("<IIQQ", 9, 8, 2000, _HUGE) + bytes(20_000)}),
    "a text to the far end in a long array": raw_gguf({"k": struct.pack("<IIQQ", 9, 8, 2000, 1 << 62) + bytes(20_000)}),
    "unknown type": raw_gguf({"k": struct.pack("<II", 13, 0)}),
    "array of arrays": raw_gguf({"k": struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQI", 4, 1, 0)}),
    "array of nothing known": raw_gguf({"k": struct.pack("<IIQ", 9, 99, 0)}),
    "alignment 0": raw_gguf({"general.alignment": 0}),
    "alignment 3": raw_gguf({"general.alignment": 3}),
    "alignment as text": raw_gguf({"general.alignment": "32"}),
    "five dimensions": raw_gguf(tensors=[("t", (1,) * 5, 0, 0)], data=64),
    "no dimensions": raw_gguf(tensors=[("t", (), 0, 0)], data=64),
    "immense tensor": raw_gguf(tensors=[("t", (_HUGE, _HUGE), 0, 0)], data=64),
    "weights cut off": raw_gguf(tensors=[("t", (100,), 0, 0)], data=399),
    "weights far away": raw_gguf(tensors=[("t", (1,), 0, 1 << 63)], data=64),
}


@pytest.mark.parametrize("case", _WRONG)
def test_a_damaged_file_is_named_so(scratch: Path, case: str) -> None:
    scratch.write_bytes(_WRONG[case])
    with pytest.raises(InvalidGgufError, match=r"^unsupported model format: "):
        read_metadata(scratch)


def test_a_file_cut_off_anywhere_is_refused(tiny: Path, scratch: Path) -> None:
    whole = tiny.read_bytes()
    header = len(whole) - read_metadata(tiny).parameter_count * 4
    for size in [*range(0, header, 41), *range(header, len(whole), 20_011), len(whole) - 1]:
        scratch.write_bytes(whole[:size])
        with pytest.raises(InvalidGgufError):
            read_metadata(scratch)


def test_what_is_no_file_is_refused(tmp_path: Path, scratch: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # with nobody at its other end: opening it must not wait
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (scratch, tmp_path, tmp_path / "pipe", tmp_path / "loop", Path("/dev/zero")):
        with pytest.raises(InvalidGgufError):
            read_metadata(path)


def _bounded(path: Path) -> None:
    """Read it: success or the one error, in bounded memory and time."""
    tracemalloc.start()
    begin = time.process_time()
    try:
        read_metadata(path)
    except InvalidGgufError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 64 << 20
    assert time.process_time() - begin < 5


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_after_the_magic_is_survived(scratch: Path, noise: bytes) -> None:
    scratch.write_bytes(b"GGUF\3\0\0\0" + noise)
    _bounded(scratch)


@given(
    st.lists(
        st.tuples(st.integers(4, 7000), st.sampled_from([b"\0", b"\xff", b"\x7f", b"\x09", b"\xff" * 8, b"\0" * 9]))
    )
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_real_header_is_survived(tiny: Path, scratch: Path, damage: list[tuple[int, bytes]]) -> None:
    data = bytearray(tiny.read_bytes()[:20_000])
    for place, junk in damage:
        data[place : place + len(junk)] = junk
    scratch.write_bytes(data)
    _bounded(scratch)


def test_a_sparse_giant_of_empty_strings_ends_soon(scratch: Path) -> None:
    """A header that says a billion empty strings, in a file that could hold them: the bound on headers ends it."""
    scratch.write_bytes(raw_gguf({"k": struct.pack("<IIQ", 9, 8, 1 << 30)}))
    os.truncate(scratch, 16 << 30)
    begin = time.process_time()
    with pytest.raises(InvalidGgufError, match="header is larger than 64 MiB"):
        read_metadata(scratch)
    assert time.process_time() - begin < 30


def test_a_model_with_a_large_tail_is_read_as_fast_as_without(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "large.gguf", tail=13 * 10**9)
    assert read_metadata(path).file_size > 13 * 10**9


# Helpers of Metadata, and the cache


def test_lookups_take_only_what_fits(scratch: Path) -> None:
    scratch.write_bytes(raw_gguf({"llama.n": 3, "flag": True, "list": [1, 2], "text": "x", "words": ["a"]}))
    metadata = read_metadata(scratch)
    assert metadata.arch_key("n") == "llama.n"
    assert metadata.integer("llama.n") == 3
    assert metadata.integer("flag", 9) == metadata.integer("list", 9) == metadata.integer("none", 9) == 9
    assert metadata.integers("llama.n") == (3,)
    assert metadata.integers("list") == (1, 2)
    assert metadata.integers("words") == metadata.integers("text") == metadata.integers("flag") == ()
    assert metadata.text("text") == "x"
    assert metadata.text("llama.n") == ""
    assert metadata.chat_template == ""


def test_the_cache_reads_a_blob_once_and_keeps_no_tensors(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, digest = MetadataCache(), Digest.of(b"x")
    first = cache.get(digest, tiny)
    assert first.tensors == ()
    assert first.tensor_count > 0
    assert cache.get(digest, Path("/nowhere")) is first
    with pytest.raises(InvalidGgufError):
        cache.get(Digest.of(b"y"), Path("/nowhere"))


def test_the_cache_is_bounded_in_number_and_size(tiny: Path) -> None:
    few = MetadataCache(entries=2)
    digests = [Digest.of(bytes([number])) for number in range(3)]
    kept = [few.get(digest, tiny) for digest in digests]
    assert len(few) == 2
    assert few.get(digests[2], Path("/nowhere")) is kept[2]
    with pytest.raises(InvalidGgufError):
        few.get(digests[0], Path("/nowhere"))
    weight = kept[0].weight
    assert 1000 < weight < 1 << 20
    small = MetadataCache(size=2 * weight)
    for digest in digests:
        small.get(digest, tiny)
    assert len(small) == 2
    assert len(_filled(MetadataCache(size=weight - 1), digests, tiny)) == 0


def _filled(cache: MetadataCache, digests: list[Digest], path: Path) -> MetadataCache:
    for digest in digests:
        cache.get(digest, path)
    return cache
