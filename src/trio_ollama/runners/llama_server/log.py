"""What a child's log says: buffer sizes, reasons of failure, slots taken and released.

Pure: bytes go in, in pieces of any size; memory is bounded whatever the child writes. Patterns are not anchored, as
a build may or may not prefix its lines with a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from trio_ollama.runners.contract import HOST, LoadReport, looks_like_out_of_memory

__all__ = ["BufferSizes", "ChildLog", "ErrorLines", "SlotEvent"]

LONGEST_LINE: Final = 8 * 1024
"""Bytes kept of one line; the rest of it is dropped."""

CAPTURED: Final = 8 * 1024
"""Bytes of error lines that are kept, the latest ones."""

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SlotEvent:
    """The child took a slot for a task, or released it."""

    slot: int
    busy: bool


class ChildLog:
    """Everything kept of one child's output."""

    def __init__(self) -> None:
        self.bytes = 0
        """Written so far: growth is a sign of life."""
        self.listening = False
        """The child said that it serves; all of the load's lines came before."""
        self.errors = ErrorLines()
        self.buffers = BufferSizes()
        self._carry = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[SlotEvent]:
        """Take in output; returns what it said about slots."""
        self.bytes += len(data)
        return [event for line in self._lines(data) if (event := self._read(line)) is not None]

    def _lines(self, data: bytes) -> Iterator[str]:
        *complete, rest = (self._carry + data).split(b"\n")
        for line in complete:
            if not self._skipping:
                yield line[:LONGEST_LINE].decode(errors="replace").rstrip("\r")
            self._skipping = False
        if len(rest) > LONGEST_LINE and not self._skipping:
            yield rest[:LONGEST_LINE].decode(errors="replace")
            self._skipping = True
        self._carry = b"" if self._skipping else rest

    def _read(self, line: str) -> SlotEvent | None:
        if "| task " in line and (match := _SLOT.search(line)):
            return SlotEvent(int(match["slot"]), match["what"] == "processing task")
        if "listening on" in line:
            self.listening = True
        self.buffers.read(line)
        self.errors.read(line)
        return None


_SLOT: Final = re.compile(r"\bid\s+(?P<slot>\d+)\s*\|\s*task\s+\d+\s*\|\s*(?P<what>processing task|stop processing)")


class ErrorLines:
    """The lines that tell why a child failed: at most 8 KiB, whole lines, each once."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}  # an ordered set: the fit probe and the load say the same twice
        self._size = 0

    def read(self, line: str) -> None:
        """Keep the line from its first mark on, if it has one."""
        if "send_error" in line:  # the answer to one request: its caller hears of it
            return
        if (mark := _ERROR.search(line)) is not None:
            text = line[mark.start() :].strip()
        elif looks_like_out_of_memory(line):
            text = line.strip()
        else:
            return
        text = text[:CAPTURED]
        if text in self._lines:
            del self._lines[text]
        else:
            self._size += len(text)
        self._lines[text] = None
        while self._size > CAPTURED:
            oldest = next(iter(self._lines))
            del self._lines[oldest]
            self._size -= len(oldest)

    def clear(self) -> None:
        """Forget all: what a load that succeeded complained of must not turn up in later errors (R52)."""
        self._lines.clear()
        self._size = 0

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    @property
    def recoverable(self) -> bool:
        """The last word is an allocation that failed and is tried again in another way (R52)."""
        return bool(self._lines) and "retrying without pipeline parallelism" in next(reversed(self._lines))


_ERROR: Final = re.compile(
    "|".join(
        map(
            re.escape,
            (
                "panic:",
                "fatal error:",
                "error:",
                "Error:",
                "CUDA error",
                "ROCm error",
                "cudaMalloc failed",
                "error loading model",
                "GGML_ASSERT",
                "Deepseek2 does not support K-shift",
                "llama_init_from_model:",
                # not among upstream's: they name the cause where the lines above only say that there is one
                "gguf_init_from_",
                "couldn't bind HTTP server socket",
            ),
        )
    )
)


class BufferSizes:
    """Memory that the child says it has allocated."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str, str], int] = {}
        self._model = ""
        self._cache = ""
        self._layers: tuple[int, int] | None = None
        self._overflowing: dict[str, int] = {}

    def read(self, line: str) -> None:
        """Take in a line. A repeated key replaces the earlier value: the fit probe speaks before the load does."""
        if "buffer size" in line and (match := _BUFFER.search(line)):
            component, name, kind, size = match.groups()
            component += self._cache if kind == "KV" else ""
            self._sizes[component + self._model, name, kind] = round(float(size) * MIB)
        elif match := _CACHE.search(line):  # models with sliding windows have two caches that log alike
            self._cache = " " + match[1]
        elif "loading draft model" in line:  # which logs just like the other one, and lies beside it
            self._model, self._cache = _DRAFT, ""
        elif match := _OFFLOADED.search(line):
            if not self._model:
                self._layers = int(match[1]), int(match[2])
        elif "overflowing" in line and (match := _OVERFLOWING.search(line)):
            self._overflowing[match[1]] = int(match[2])

    def report(self, context: int, file_size: int) -> LoadReport:
        """`context`: tokens per slot; `file_size`: bytes of the weights."""
        buffers: dict[tuple[str, str], int] = {}
        for (_, name, kind), size in self._sizes.items():
            key = (_device(name) if _on_gpu(name) else HOST, kind)
            buffers[key] = buffers.get(key, 0) + size
        if excess := self._mapped_excess(file_size):
            buffers[HOST, "model"] -= excess
        total = sum(buffers.values())
        gpu = sum(size for (device, _), size in buffers.items() if device != HOST)
        if self._layers is not None and self._layers[0] >= self._layers[1] and not sum(self._overflowing.values()):
            total = gpu  # all layers are on GPUs: what is left in RAM are buffers for the transfer
        return LoadReport(context, total, gpu, buffers)

    def _mapped_excess(self, file_size: int) -> int:
        """Bytes by which mapped weights exceed the file: parts that were copied to a GPU stay mapped as well."""
        weights = {
            name: size
            for (component, name, kind), size in self._sizes.items()
            if kind == "model" and not component.endswith(_DRAFT)
        }
        mapped = sum(size for name, size in weights.items() if name.endswith("_Mapped"))
        return min(mapped, max(0, sum(weights.values()) - file_size)) if mapped and file_size else 0

    @property
    def sizes(self) -> Mapping[tuple[str, str, str], int]:
        """Bytes by component, buffer name and kind."""
        return self._sizes


_BUFFER: Final = re.compile(
    r"\b(\w{1,64}):\s+(\S{1,64})\s+(model|KV|compute|output|RS|LoRA)\s+buffer size\s*=\s*(\d+(?:\.\d+)?)\s*MiB"
)
_CACHE: Final = re.compile(r"creating\s+(non-SWA|SWA) KV cache")
_DRAFT: Final = " draft"
_OFFLOADED: Final = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_OVERFLOWING: Final = re.compile(r"-\s(\w{1,64})\b.{0,256}?:\s*\d+ layers\s+\(\s*(\d+) overflowing\)")


def _on_gpu(name: str) -> bool:
    return not (name in {"CPU", "BLAS"} or name.startswith("CPU_") or name.endswith("_Host"))


def _device(name: str) -> str:
    for suffix in ("_Mapped", "_REPACK", "_Private"):
        name = name.removesuffix(suffix)
    return name
