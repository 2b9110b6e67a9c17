"""What the daemon costs before anybody asks it anything: CPU time until it listens, and resident memory when idle.

python -m tests.benchmarks.footprint [--runs N]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import psutil

from tests.support.real_daemon import RealDaemon

__all__ = ["main"]


def main(runs: int) -> None:
    cpu, memory = [], []
    for run in range(runs):
        with tempfile.TemporaryDirectory() as folder, RealDaemon(Path(folder) / f"models{run}") as daemon:
            process = psutil.Process(daemon.pid)
            times = process.cpu_times()
            cpu.append(times.user + times.system)
            memory.append(process.memory_info().rss / (1 << 20))
    print(f"medians of {runs} starts\n")
    print("| CPU time until it listens | resident memory, idle |")
    print("|--:|--:|")
    print(f"| {statistics.median(cpu):.2f} s | {statistics.median(memory):.0f} MiB |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    main(parser.parse_args().runs)
