"""Quantizing a model's weights, in a child process with the functions of the runner's own library."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from . import quantize_child
from .blobs import BlobWriter
from .errors import CreateError, StoreUnavailableError
from .gguf import Layout, StoredTensor, read_layout
from .gguf_constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType
from .gguf_writing import header, padding
from .quantization import Mixture, types_of

__all__ = ["check_library", "quantize"]

_PIECE: Final = 4 << 20
_VERSION: Final = 2
"""Of the formats of blocks."""


def check_library() -> None:
    """Raises CreateError where there is nothing to quantize with."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise CreateError("quantizing needs the package xllamacpp: install it, or create from a quantized file")


def quantize(path: Path, wanted: Mixture, writer: BlobWriter) -> Iterator[tuple[int, int]]:
    """Write the model at `path` anew with the types of a mixture (blocking).

    Yields (bytes written, bytes in all) from time to time; closing the iterator ends the child at once. Raises
    CreateError when the child fails, InvalidGgufError, StoreUnavailableError.
    """
    layout = read_layout(path)
    tensors, end = list[StoredTensor](), 0
    for tensor, kind in zip(layout.tensors, types_of(layout, wanted), strict=True):
        block, size = GGML_QUANT_SIZES[kind]
        bytes_ = math.prod(tensor.shape) // block * size
        tensors.append(tensor._replace(kind=int(kind), offset=end, size=bytes_))
        end += bytes_ + padding(bytes_, layout.alignment)
    head = header(_values(layout.values, wanted), tensors, layout.alignment)
    writer.write(head)
    done, total = len(head), len(head) + end
    with _child(layout, tensors) as output:
        for tensor in tensors:
            left = tensor.size
            while left:
                piece = output.read(min(left, _PIECE))
                if not piece:
                    raise CreateError("quantizing failed")
                writer.write(piece)
                left -= len(piece)
                done += len(piece)
                yield done, total
            writer.write(gap := bytes(padding(tensor.size, layout.alignment)))
            done += len(gap)
    yield done, total


def _values(values: Mapping[str, bytes], wanted: Mixture) -> dict[str, bytes]:
    own = {"general.file_type": int(wanted.file_type), "general.quantization_version": _VERSION}
    raw = {}
    for name, number in own.items():
        key = name.encode()
        raw[name] = struct.pack("<Q", len(key)) + key + struct.pack("<II", GGUFValueType.UINT32, number)
    return {**values, **raw}


@contextlib.contextmanager
def _child(layout: Layout, tensors: list[StoredTensor]) -> Iterator[IO[bytes]]:
    """The process and its output: the new tensors' bytes, one after the other. It does not outlive the block, nor the
    daemon: the first piece that nobody reads ends it.
    """
    jobs = [
        {
            "begin": layout.start + old.offset,
            "size": old.size,
            "row": old.shape[0],
            "from": GGMLQuantizationType(old.kind).name,
            "to": GGMLQuantizationType(new.kind).name,
            "number": new.kind,
        }
        for old, new in zip(layout.tensors, tensors, strict=True)
    ]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as orders:
        orders.write(json.dumps({"path": str(layout.path), "tensors": jobs}).encode())
        orders.seek(0)
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", quantize_child.__file__],
                stdin=orders,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise StoreUnavailableError(f"cannot start quantizing: {error.strerror}") from error
        assert process.stdout is not None
        try:
            yield process.stdout
        except CreateError:
            process.wait()
            errors.seek(0)
            reason = errors.read().decode(errors="replace").strip().splitlines()
            raise CreateError(f"quantizing failed: {reason[-1] if reason else process.returncode}") from None
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
