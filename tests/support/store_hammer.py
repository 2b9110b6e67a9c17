"""A process that makes, copies, reads and removes models of a store as fast as it can, all of them of the same blobs.

Usage: `python -m tests.support.store_hammer ROOT SEED TIMES`. Prints how often it has done what, as JSON. Exit status
1, with a traceback, when it meets a model that is damaged.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

from tests.support.raw_gguf import raw_gguf
from trio_ollama.models.create import CreateRequest, create
from trio_ollama.models.errors import BlobNotFoundError, ModelNotFoundError
from trio_ollama.models.store import Store

__all__ = ["main"]

WEIGHTS = tuple(raw_gguf({"llama.block_count": blocks}) for blocks in (1, 2))
NAMES = ("a", "b", "them/c", "h/n/d")
TEXTS = ("one", "two")


def main(root: Path, seed: int, times: int) -> None:
    """Raises whatever is neither a success nor the clear refusal of one who came too late."""
    os.fsync = lambda fd: None  # it would wait for the disk most of the time, and hardly do anything
    store, choose, counts = Store(root), random.Random(seed), Counter[str]()
    for _ in range(times):
        what = choose.choice(("make", "derive", "copy", "delete", "delete", "read", "read"))
        one, other = choose.sample(NAMES, 2)
        try:
            match what:
                case "make":
                    digest, _ = store.blobs.put(choose.choice(WEIGHTS))
                    request = CreateRequest(model=one, files={"w.gguf": str(digest)}, system=choose.choice(TEXTS))
                    list(create(store, request))
                case "derive":
                    list(create(store, CreateRequest(model=one, source=other, system=choose.choice(TEXTS))))
                case "copy":
                    store.copy(one, other)
                case "delete":
                    store.delete(one)
                case _:
                    assert store.resolve(one).system in TEXTS
            counts[what] += 1
        except (ModelNotFoundError, BlobNotFoundError):
            counts["too late"] += 1
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
