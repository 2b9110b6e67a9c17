"""Reading a GGUF file's header: keys, values and tensor descriptions, without the weights.

Long arrays (a vocabulary and its merges) are stepped over, not built: reading a 150,000-entry vocabulary costs tens
of milliseconds, not seconds. Whatever is wrong with a file, the answer is InvalidGgufError; every count in a header
is checked against what the file can hold and against a bound of our own before anything is made of it.
"""

from __future__ import annotations

import bisect
import functools
import math
import os
import re
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeVar

from .errors import InvalidGgufError
from .gguf_constants import GGML_QUANT_SIZES, GGUF_DEFAULT_ALIGNMENT, GGMLQuantizationType, GGUFValueType
from .metadata import Metadata, Scalar, SkippedArray, Tensor, Value

__all__ = ["MAX_HEADER", "Layout", "Metadata", "StoredTensor", "read_layout", "read_metadata"]

MAX_HEADER: Final = 64 << 20
"""Bytes before the weights. The largest vocabularies known take 10-20 MiB; the bound keeps a hostile file from being
walked for minutes or held in memory."""

_MAX_VALUES: Final = 4096
_MAX_TENSORS: Final = 100_000
_SHORT_ARRAY: Final = 1024
"""Arrays with more elements are skipped, as upstream does."""
_MAX_ELEMENTS: Final = 1 << 16
_MAX_ELEMENTS_LONG: Final = 1 << 21
"""Array elements kept in all, without and with long arrays."""
_FIRST_READ: Final = 4 << 20
_BLOCK: Final = 256
_MAGIC: Final = b"GGUF"

_SCALARS: Final[Mapping[int, struct.Struct]] = {
    GGUFValueType.UINT8: struct.Struct("<B"),
    GGUFValueType.INT8: struct.Struct("<b"),
    GGUFValueType.UINT16: struct.Struct("<H"),
    GGUFValueType.INT16: struct.Struct("<h"),
    GGUFValueType.UINT32: struct.Struct("<I"),
    GGUFValueType.INT32: struct.Struct("<i"),
    GGUFValueType.FLOAT32: struct.Struct("<f"),
    GGUFValueType.BOOL: struct.Struct("<?"),
    GGUFValueType.UINT64: struct.Struct("<Q"),
    GGUFValueType.INT64: struct.Struct("<q"),
    GGUFValueType.FLOAT64: struct.Struct("<d"),
}
_U64: Final = struct.Struct("<Q")

T = TypeVar("T")


class StoredTensor(NamedTuple):
    """A tensor as the header has it, and the bytes it takes."""

    name: str
    shape: tuple[int, ...]
    kind: int
    """The type's number."""
    offset: int
    """From the start of the weights."""
    size: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is in a file, for those who write it anew."""

    path: Path
    values: Mapping[str, bytes]
    """Each key with its value as they are in the file: key, type and value."""
    tensors: tuple[StoredTensor, ...]
    alignment: int
    start: int
    """Where the weights begin."""
    size: int
    """Of the file."""


def read_metadata(path: str | Path, *, long_arrays: bool = False) -> Metadata:
    """Read a file's header (blocking).

    Raises InvalidGgufError for anything but a whole GGUF file of version 2 or 3 (`invalid file magic`, `unsupported
    model format: ...`), and for a path that cannot be read.
    """
    return _read(path, long_arrays, _Walk.metadata)


def read_layout(path: str | Path) -> Layout:
    """Read where the parts of a file are (blocking). Raises InvalidGgufError."""
    return _read(path, False, lambda walk: walk.layout(Path(path)))


def _read(path: str | Path, long_arrays: bool, what: Callable[[_Walk], T]) -> T:
    try:
        # Without O_NONBLOCK a pipe in a file's place would hold the caller for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidGgufError("invalid file magic")
            return what(_Walk(file, status.st_size, long_arrays))
    except OSError as error:
        raise InvalidGgufError(f"cannot read {path}: {error.strerror}") from error


@functools.cache
def _short_strings() -> re.Pattern[bytes]:
    """Matches exactly `_BLOCK` strings of less than 64 bytes, each with its 64-bit length before it.

    The regular expression engine steps from string to string three times as fast as a loop in Python. Possessive, so
    it keeps no way back; common lengths come first, because alternatives are tried in order.
    """
    lengths = sorted(range(64), key=lambda length: abs(length - 6))
    strings = (re.escape(bytes([length])) + rb"\0" * 7 + b"." * length for length in lengths)
    return re.compile(b"(?s:" + b"|".join(strings) + b"){%d}+" % _BLOCK)


def _damaged(why: str) -> InvalidGgufError:
    return InvalidGgufError(f"unsupported model format: {why}")


class _Walk:
    """One pass over a header. `data` holds the file from its start; `position` never goes back."""

    def __init__(self, file: IO[bytes], file_size: int, long_arrays: bool) -> None:
        self.file = file
        self.file_size = file_size
        self.data = b""
        self.position = 0
        self.longest = _MAX_ELEMENTS_LONG if long_arrays else _SHORT_ARRAY
        self.elements_left = _MAX_ELEMENTS_LONG if long_arrays else _MAX_ELEMENTS
        self.weight = 0
        self.spans: dict[str, slice] = {}
        self.stored: list[StoredTensor] = []
        self.alignment = GGUF_DEFAULT_ALIGNMENT

    def layout(self, path: Path) -> Layout:
        start = self.metadata().header_size
        values = {key: self.data[span] for key, span in self.spans.items()}
        # What a type takes that is newer than this program: all there is up to the next tensor.
        ends = sorted([tensor.offset for tensor in self.stored] + [self.file_size - start])
        tensors = [
            tensor if tensor.size else tensor._replace(size=ends[bisect.bisect(ends, tensor.offset)] - tensor.offset)
            for tensor in self.stored
            if tensor.offset < ends[-1]
        ]
        if len(tensors) < len(self.stored):
            raise _damaged("the file ends before its last tensor")
        return Layout(path, values, tuple(tensors), self.alignment, start, self.file_size)

    def metadata(self) -> Metadata:
        if self.file_size < 4 or self.take(4) != _MAGIC:
            raise InvalidGgufError("invalid file magic")
        version = self.u32()
        if version not in (2, 3):
            raise _damaged(f"GGUF version {version}")
        tensor_count, value_count = self.u64(), self.u64()
        if tensor_count > _MAX_TENSORS or value_count > _MAX_VALUES:
            raise _damaged(f"{tensor_count} tensors, {value_count} values")
        values: dict[str, Value] = {}
        for _ in range(value_count):
            begin = self.position
            key = self.string()
            values[key] = self.value(self.u32())
            self.spans[key] = slice(begin, self.position)
        alignment = values.get("general.alignment", GGUF_DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            raise _damaged("bad alignment")
        self.alignment = alignment
        tensors, end = self.tensors(tensor_count)
        start = -(-self.position // alignment) * alignment
        if tensors and start + end > self.file_size:
            raise _damaged(f"the file ends after {self.file_size} of {start + end} bytes")
        return Metadata(
            values=values,
            tensors=tensors,
            tensor_count=tensor_count,
            parameter_count=sum(math.prod(tensor.shape) for tensor in tensors),
            file_size=self.file_size,
            header_size=start,
            inline_vision=any(tensor.name.startswith("v.") for tensor in tensors),
            inline_draft=any(tensor.name.startswith("mtp.") for tensor in tensors),
            token_embeddings=sum(_size(tensor) for tensor in tensors if tensor.name == "token_embd.weight"),
            has_output=any(tensor.name == "output.weight" for tensor in tensors),
            weight=self.weight + 150 * len(values),
        )

    def need(self, size: int) -> int:
        """Make the next `size` bytes part of `data` and step over them; returns where they begin."""
        begin, end = self.position, self.position + size
        while end > len(self.data):
            self.more(end)
        self.position = end
        return begin

    def more(self, end: int) -> None:
        """Read on, at least doubling, towards `end`."""
        if end > self.file_size:
            raise _damaged("the file ends inside its header")
        if end > MAX_HEADER:
            raise _damaged(f"the header is larger than {MAX_HEADER >> 20} MiB")
        want = min(max(2 * len(self.data), end, _FIRST_READ), MAX_HEADER, self.file_size)
        piece = self.file.read(want - len(self.data))
        if not piece:  # it shrank meanwhile
            raise _damaged("the file ends inside its header")
        self.data = self.data + piece if self.data else piece

    def take(self, size: int) -> bytes:
        begin = self.need(size)
        return self.data[begin : self.position]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def string(self) -> str:
        raw = self.take(self.u64())
        self.weight += len(raw)
        return raw.decode("utf-8", "replace")

    def value(self, kind: int) -> Value:
        if kind == GGUFValueType.STRING:
            return self.string()
        if kind == GGUFValueType.ARRAY:
            return self.array(self.u32(), self.u64())
        form = _SCALARS.get(kind)
        if form is None:
            raise _damaged(f"value type {kind}")
        scalar: Scalar = form.unpack(self.take(form.size))[0]
        return scalar

    def array(self, kind: int, count: int) -> tuple[Scalar, ...] | SkippedArray:
        form = _SCALARS.get(kind)
        if form is None and kind != GGUFValueType.STRING:  # also arrays in arrays, which llama.cpp refuses too
            raise _damaged(f"array of type {kind}")
        smallest = 8 if form is None else form.size
        if count * smallest > self.file_size - self.position:
            raise _damaged("the file ends inside its header")
        keep = count <= min(self.longest, self.elements_left)
        if keep:
            self.elements_left -= count
            self.weight += 48 * count
        if form is None:
            if keep:
                return tuple(self.string() for _ in range(count))
            self.skip_strings(count)
        else:
            begin = self.need(count * form.size)
            if keep:
                return struct.unpack_from(f"<{count}{form.format[1:]}", self.data, begin)
        return SkippedArray(count)

    def skip_strings(self, count: int) -> None:
        """Step over strings, from length to length: this is nearly all that reading a vocabulary costs."""
        skip_block, unpack = _short_strings().match, _U64.unpack_from
        position, left = self.position, count
        while left:
            data = self.data
            while left >= _BLOCK and (block := skip_block(data, position)) is not None:
                position = block.end()
                left -= _BLOCK
            try:
                for _ in range(min(left, _BLOCK)):
                    position += 8 + unpack(data, position)[0]
                    left -= 1
            except (struct.error, OverflowError):  # the next length is not read yet, or far outside of any file
                self.more(position + 8)
        self.position = position
        self.need(0)

    def tensors(self, count: int) -> tuple[tuple[Tensor, ...], int]:
        """The tensors' descriptions, and where the last one's data ends, counted from the start of the data."""
        tensors, end = [], 0
        for _ in range(count):
            name = self.string()
            dimensions = self.u32()
            if not 1 <= dimensions <= 4:
                raise _damaged(f"tensor {name[:64]!r} has {dimensions} dimensions")
            shape = tuple(self.u64() for _ in range(dimensions))
            number, offset = self.u32(), self.u64()
            if math.prod(shape) >= 1 << 63:
                raise _damaged(f"tensor {name[:64]!r} is too large")
            known = number in GGML_QUANT_SIZES  # an IntEnum's members are its keys
            kind = GGMLQuantizationType(number).name if known else "unknown"
            tensors.append(Tensor(name, kind, shape))
            size = _size(tensors[-1])
            self.stored.append(StoredTensor(name, shape, number, offset, size))
            if size:
                end = max(end, offset + size)
        return tuple(tensors), end


def _size(tensor: Tensor) -> int:
    """Bytes of its data; 0 for a type that is newer than this program."""
    if tensor.type == "unknown":
        return 0
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[tensor.type]]
    return -(-math.prod(tensor.shape) // block) * size
