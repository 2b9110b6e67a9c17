"""GGUF headers by blob digest: content never changes under a digest, so an entry is never wrong, only forgotten."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

from .digest import Digest
from .gguf import Metadata, read_metadata

__all__ = ["MetadataCache"]

_ENTRIES: Final = 256
_BYTES: Final = 8 << 20


class MetadataCache:
    """The most recently used headers, bounded in number and in bytes; safe to use from several threads.

    Tensor descriptions are not kept: only `show` wants them, and it reads the file again.
    """

    def __init__(self, entries: int = _ENTRIES, size: int = _BYTES) -> None:
        self._max_entries = entries
        self._max_size = size
        self._size = 0
        self._kept: OrderedDict[Digest, Metadata] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, digest: Digest, path: Path) -> Metadata:
        """The header of the blob at `path` (blocking when it is not cached; without its tensors).

        Raises InvalidGgufError. Two threads that miss at once both read: harmless, and no thread waits for another.
        """
        with self._lock:
            if (found := self._kept.get(digest)) is not None:
                self._kept.move_to_end(digest)
                return found
        metadata = dataclasses.replace(read_metadata(path), tensors=())
        with self._lock:
            if digest not in self._kept and metadata.weight <= self._max_size:
                self._kept[digest] = metadata
                self._size += metadata.weight
            while len(self._kept) > self._max_entries or self._size > self._max_size:
                _, oldest = self._kept.popitem(last=False)
                self._size -= oldest.weight
        return metadata

    def __len__(self) -> int:
        return len(self._kept)
