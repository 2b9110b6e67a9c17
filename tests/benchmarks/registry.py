"""How fast a pull from a registry on this machine is, beside `curl` with the same file, and what the daemon needs.

python -m tests.benchmarks.registry [--bytes N] [--rounds N]

Each round fetches the same blob by `curl` and by the daemon, which checks it, too; what a busy machine does to both
cancels out in the ratio.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import httpx2
import psutil

from tests.support.docker_registry import NO_REGISTRY, DockerRegistry, find_docker_registry
from tests.support.real_daemon import RealDaemon
from tests.support.registry_models import publish, write_large
from tests.support.store_fixture import OllamaStore

__all__ = ["main"]

MIB = 1 << 20
LOOK = 0.01
"""Seconds between two looks at the daemon's memory."""


def main(size: int, rounds: int) -> None:
    if find_docker_registry() is None or shutil.which("curl") is None:
        raise SystemExit(NO_REGISTRY if shutil.which("curl") else "no curl on this machine")
    with tempfile.TemporaryDirectory() as name, DockerRegistry(Path(name) / "registry") as registry:
        folder = Path(name)
        model = publish(registry, OllamaStore(folder / "source"), "large", write_large(folder / "weights", size))
        url = f"{registry.url}/v2/library/large/blobs/{model.weights}"
        print(f"{size / 1e9:g} GB, {rounds} rounds\n")
        print("| round | curl, MB/s | and sha256sum | pull, MB/s | ratio | CPU s/GB: curl, daemon | peak MiB (idle) |")
        print("|--:|--:|--:|--:|--:|--:|--:|")
        ratios = []
        for number in range(rounds):
            fetched, store = folder / "fetched", folder / f"store{number}"
            # In turns, so that neither always has the better moment.
            if number % 2:
                theirs, ours = curl(url, fetched), pull(store, registry)
            else:
                ours, theirs = pull(store, registry), curl(url, fetched)
            seconds, cpu, idle, highest = ours
            theirs_seconds, theirs_cpu, check = theirs
            ratios.append(theirs_seconds / seconds)
            speeds = [f"{size / 1e6 / one:.0f}" for one in (theirs_seconds, theirs_seconds + check, seconds)]
            spent = f"{theirs_cpu * 1e9 / size:.2f}, {cpu * 1e9 / size:.2f}"
            memory = f"{highest / MIB:.0f} ({idle / MIB:.0f})"
            print("|", " | ".join([str(number + 1), *speeds, f"{ratios[-1]:.2f}", spent, memory]), "|", flush=True)
    print(f"\nmedian of the ratios: {statistics.median(ratios):.2f}")


def curl(url: str, target: Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds, and seconds of a check by `sha256sum`."""
    before = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    began = perf_counter()
    subprocess.run(["curl", "--silent", "--fail", "--output", str(target), url], check=True)
    seconds = perf_counter() - began
    spent = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - before
    began = perf_counter()
    subprocess.run(["sha256sum", str(target)], check=True, stdout=subprocess.DEVNULL)
    checked = perf_counter() - began
    target.unlink()
    return seconds, spent, checked


def pull(store: Path, registry: DockerRegistry) -> tuple[float, float, int, int]:
    """Seconds until `success`, CPU seconds of the daemon, its resident bytes before and at most."""
    with RealDaemon(store, HOME=str(store.parent), OLLAMA_DEBUG="") as daemon:
        process = psutil.Process(daemon.pid)
        idle, before = process.memory_info().rss, sum(process.cpu_times()[:2])
        with peak(process) as highest:
            began = perf_counter()
            body = {"model": f"127.0.0.1:{registry.port}/library/large", "insecure": True}
            with httpx2.stream("POST", f"{daemon.url}/api/pull", json=body, timeout=600, trust_env=False) as answer:
                last = [json.loads(line) for line in answer.iter_lines()][-1]
            seconds = perf_counter() - began
        assert last == {"status": "success"}, last
        spent = sum(process.cpu_times()[:2]) - before
    shutil.rmtree(store)
    return seconds, spent, idle, highest[0]


@contextmanager
def peak(process: psutil.Process) -> Iterator[list[int]]:
    """The most resident bytes that the process has meanwhile."""
    highest = [0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK):
            highest[0] = max(highest[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield highest
    finally:
        ended.set()
        watcher.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bytes", type=int, default=2_000_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    main(arguments.bytes, arguments.rounds)
