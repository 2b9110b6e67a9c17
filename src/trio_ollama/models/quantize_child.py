"""Runs in a process of its own: turns the tensors of a GGUF file into other types, and writes them to stdout.

Run by path, so that nothing of the package is imported. Reads its orders as JSON from stdin: the file's `path` and
its `tensors`, each with `begin` and `size` in the file, elements of a `row`, types `from` and `to`, and the second's
`number` in the library.
"""

from __future__ import annotations

import collections
import ctypes
import json
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["main"]

ELEMENTS = 1 << 20
"""Of one piece, roughly: enough to keep a thread busy for a while, few enough to hold several of them."""
NICE = 10
"""Nobody waits for a quantization as they wait for tokens."""


def main() -> None:
    """Raises whatever goes wrong: the traceback is on stderr, and the status is 1."""
    import numpy

    os.nice(NICE)
    orders = json.load(sys.stdin)
    quantize = function()
    workers = len(os.sched_getaffinity(0))
    data = numpy.memmap(orders["path"], mode="r")
    waiting: collections.deque[Future[bytes]] = collections.deque()
    with ThreadPoolExecutor(workers) as pool:
        for tensor in orders["tensors"]:
            piece = pieces(tensor)
            for begin in range(tensor["begin"], tensor["begin"] + tensor["size"], piece):
                end = min(begin + piece, tensor["begin"] + tensor["size"])
                waiting.append(pool.submit(convert, quantize, data[begin:end], tensor))
                while len(waiting) > 2 * workers:
                    write(waiting.popleft().result())
        while waiting:
            write(waiting.popleft().result())


def pieces(tensor: dict[str, Any]) -> int:
    """Bytes of whole rows of a tensor that are turned at once."""
    row = int(tensor["row"]) * (4 if tensor["from"] == "F32" else 2)
    if tensor["from"] == tensor["to"]:
        return 4 * ELEMENTS
    return row * max(ELEMENTS // int(tensor["row"]), 1)


def write(data: bytes) -> None:
    """All of it. Raises BrokenPipeError when the daemon does not read any more."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def convert(quantize: Any, raw: Any, tensor: dict[str, Any]) -> bytes:
    """Whole rows of a tensor in their new type."""
    import numpy

    if tensor["from"] == tensor["to"]:
        return bytes(raw)
    if tensor["from"] == "BF16":
        values = (raw.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    else:
        values = raw.view(numpy.float32 if tensor["from"] == "F32" else numpy.float16).astype(numpy.float32)
    if tensor["to"] == "F16":
        half: bytes = values.astype(numpy.float16).tobytes()
        return half
    row = int(tensor["row"])
    target = ctypes.create_string_buffer(values.nbytes)  # no type takes more
    # Without the interpreter's lock: the threads work at the same time.
    size = quantize(tensor["number"], values.ctypes.data, target, 0, values.size // row, row, None)
    return target.raw[:size]


def function() -> Any:
    """llama.cpp's own, which the package's library exports, though not to Python. Raises RuntimeError."""
    import xllamacpp

    try:
        found = ctypes.CDLL(xllamacpp.xllamacpp.__file__).ggml_quantize_chunk
    except (AttributeError, OSError):
        raise RuntimeError("the installed build of xllamacpp cannot quantize") from None
    number, pointer = ctypes.c_int64, ctypes.c_void_p
    found.restype, found.argtypes = ctypes.c_size_t, [ctypes.c_int, pointer, pointer, number, number, number, pointer]
    return found


if __name__ == "__main__":
    main()
