"""Memory of real children against both estimates: upstream's formula and the footprint that reservations are made of.

    python -m tests.benchmarks.memory_estimate [--only TEXT]

Measured is the growth of the child's resident memory, from an idle child (the library, no model) to one that has worked
through a prompt of one batch. The footprint also counts what only a full context touches. All in MiB, on the CPU, with
flash attention. Exit status 1 if an estimate is off by more than 10 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import trio

from tests.support.gguf_shapes import write_shape
from tests.support.measured_child import Case, expected_buffers, expected_growth, idle_child, measure
from tests.support.smollm2 import PACKAGE, find_smollm2
from trio_ollama.runners.llama_server import runner_factory
from trio_ollama.scheduler.core.footprint import IDLE_PROCESS
from trio_ollama.scheduler.core.memory import predict_vram

__all__ = ["main"]

MIB = 1 << 20
TOLERANCE = 0.10


def smollm2() -> Iterator[Case]:
    path = find_smollm2()
    if path is None:
        print(f"no weights of SmolLM2: {PACKAGE} is not installed\n")
        return
    for num_ctx in (512, 2048, 8192):
        yield Case(f"SmolLM2, {num_ctx}", path, num_ctx)
    yield Case("SmolLM2, 2 x 4096", path, 4096, parallel=2)
    yield Case("SmolLM2, 8192 q8_0", path, 8192, cache_type="q8_0")
    yield Case("SmolLM2, 8192 q4_0", path, 8192, cache_type="q4_0")
    yield Case("SmolLM2, 65536", path, 65536, uncapped=True)
    yield Case("SmolLM2, 8192, batch 128", path, 8192, num_batch=128)


def generated(folder: Path) -> Iterator[Case]:
    gqa = write_shape(
        folder / "gqa.gguf", layers=12, embedding=1024, heads=16, kv_heads=4, feed_forward=2816, context=65536
    )
    yield Case("GQA", gqa, 4096)
    yield Case("quantized KV", gqa, 32768, cache_type="q8_0")
    yield Case("long context", gqa, 32768, num_batch=128)
    mha = write_shape(folder / "mha.gguf", layers=12, embedding=768, heads=12, kv_heads=12, feed_forward=2048)
    yield Case("MHA", mha, 4096)
    yield Case("MHA, 4 slots", mha, 1024, parallel=4)
    yield Case(
        "large vocabulary", write_shape(folder / "words.gguf", vocabulary=150_000, merges=True, feed_forward=2048)
    )
    window = write_shape(
        folder / "gemma.gguf",
        architecture="gemma3",
        layers=24,
        embedding=640,
        heads=4,
        kv_heads=1,
        key_length=256,
        feed_forward=2048,
        window=512,
        vocabulary=100_000,
        tied=True,
        context=32768,
    )
    yield Case("sliding window", window, 32768)
    recurrent = write_shape(
        folder / "mamba.gguf", architecture="mamba", layers=16, embedding=1024, heads=0, state=16, feed_forward=0
    )
    yield Case("recurrent", recurrent, parallel=4)
    yield Case("experts", write_shape(folder / "experts.gguf", experts=8, feed_forward=1536, layers=6))
    yield Case("repacked weights", write_shape(folder / "q4.gguf", weights="Q4_K", layers=16, embedding=1024))
    yield Case("embeddings", mha, 2048, embeddings=True)


async def table(folder: Path, only: str) -> bool:
    """Print it; False if an estimate is off."""
    idle, good = idle_child(), True
    print(f"an idle child: {idle / MIB:.1f} MiB, taken for {IDLE_PROCESS / MIB:.0f}\n")
    print("| model, context | formula | measured | footprint | off by | own buffers, said / expected |")
    print("|---|--:|--:|--:|--:|--:|")
    with runner_factory("embedded", root=folder) as factory:
        for case in (*smollm2(), *generated(folder)):
            if only not in case.name:
                continue
            measured = await measure(factory, case)
            growth, expected = measured.working - idle, expected_growth(case)
            formula = predict_vram(case.facts, case.num_ctx, case.config.parallel)
            off = expected / growth - 1
            good &= abs(off) <= TOLERANCE
            print(
                f"| {case.name} | {formula / MIB:.1f} | {growth / MIB:.1f} | {expected / MIB:.1f} | {off:+.1%} "
                f"| {measured.buffers / MIB:.1f} / {expected_buffers(case) / MIB:.1f} |",
                flush=True,
            )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="rows with this text in their name")
    with tempfile.TemporaryDirectory() as folder:
        return 0 if trio.run(table, Path(folder), parser.parse_args().only) else 1


if __name__ == "__main__":
    sys.exit(main())
