"""Writing GGUF files: a header that was put together anew, in front of weights that come from elsewhere."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from .blobs import BlobWriter
from .errors import CreateError, StoreUnavailableError
from .gguf import Layout, StoredTensor, read_layout
from .gguf_constants import GGUF_DEFAULT_ALIGNMENT

__all__ = ["header", "merge", "padding"]

_PIECE: Final = 8 << 20
_SPLIT_KEYS: Final = ("split.no", "split.count", "split.tensors.count")


def padding(position: int, alignment: int = GGUF_DEFAULT_ALIGNMENT) -> int:
    """Bytes to the next multiple of `alignment`."""
    return -position % alignment


def header(values: Mapping[str, bytes], tensors: Sequence[StoredTensor], alignment: int) -> bytes:
    """Everything before the weights; `values` as in `Layout`."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values)), *values.values()]
    for tensor in tensors:
        name = tensor.name.encode()
        parts += [struct.pack("<Q", len(name)), name, struct.pack("<I", len(tensor.shape))]
        parts += [struct.pack(f"<{len(tensor.shape)}QIQ", *tensor.shape, tensor.kind, tensor.offset)]
    data = b"".join(parts)
    return data + bytes(padding(len(data), alignment))


def merge(paths: Sequence[Path], writer: BlobWriter) -> Iterator[tuple[int, int]]:
    """Write the parts of a split model as the one file it was: its values from the first part, all parts' weights.

    Yields (bytes written, bytes in all) from time to time. Raises CreateError, InvalidGgufError,
    StoreUnavailableError.
    """
    layouts = [read_layout(path) for path in paths]
    values, alignment = layouts[0].values, layouts[0].alignment
    tensors, end = list[StoredTensor](), 0
    for tensor in (tensor for layout in layouts for tensor in layout.tensors):
        # llama.cpp takes a file only if each tensor begins where the one before it ends.
        tensors.append(tensor._replace(offset=end))
        end += tensor.size + padding(tensor.size, alignment)
    if len({tensor.name for tensor in tensors}) < len(tensors):
        raise CreateError("two parts of the split GGUF have the same tensor")
    head = header({key: raw for key, raw in values.items() if key not in _SPLIT_KEYS}, tensors, alignment)
    writer.write(head)
    done, total = len(head), len(head) + end
    for layout in layouts:
        for piece in _weights(layout, alignment):
            writer.write(piece)
            done += len(piece)
            if len(piece) >= _PIECE or done == total:
                yield done, total


def _weights(layout: Layout, alignment: int) -> Iterator[bytes]:
    try:
        with layout.path.open("rb", buffering=0) as file:
            for tensor in layout.tensors:
                file.seek(layout.start + tensor.offset)
                left = tensor.size
                while left:
                    piece = file.read(min(left, _PIECE))
                    if not piece:
                        raise StoreUnavailableError(f"cannot read {layout.path}: it has become shorter")
                    left -= len(piece)
                    yield piece
                yield bytes(padding(tensor.size, alignment))
    except OSError as error:
        raise StoreUnavailableError(f"cannot read {layout.path}: {error.strerror}") from error
