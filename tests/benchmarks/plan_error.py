"""How far off `python -m simulations plan` is: the same requests, really served and forecast.

    python -m tests.benchmarks.plan_error [--requests N] [--seed N] [--keep FOLDER]

For each setting two daemons, one after the other, serve requests that arrive at random, to three tiny models; some
clients leave. Both record. Rates are taken from the first recording, and the second one is forecast with them on the
same machine and settings, so that nothing is forecast from itself. The forecasts of both recordings from themselves
tell what is left when the machine's own speed does not change. Before all that, what streams beside each other cost
in one runner is measured with 1, 2 and 4 of them. Prints Markdown tables.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import trio

from simulations.plan.calibrate import calibrate
from simulations.plan.forecast import Plan, forecast
from simulations.plan.machine import from_header
from simulations.plan.rates import Rates
from simulations.plan.reading import read_trace
from simulations.plan.table import Row, planned, recorded
from simulations.plan.trace import Trace
from tests.support.api_client import ApiClient
from tests.support.real_daemon import RealDaemon
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import words, write_tiny_gguf

MODELS: Final = ("alpha", "beta", "gamma")
WEIGHTS: Final = (5, 3, 2)
"""How often each is asked for."""
STREAMS: Final = (1, 2, 4)
LEAVES: Final = 0.15
"""Part of the clients that leave, within four tenths of a second."""
SERVED: Final = 120.0


@dataclass(frozen=True, slots=True)
class Setting:
    max_models: int
    parallel: int
    gap: float
    """Mean seconds between arrivals."""

    def __str__(self) -> str:
        return f"{self.max_models} loaded at most, {self.parallel} at once"


SETTINGS: Final = (Setting(1, 1, 0.6), Setting(1, 4, 0.6), Setting(3, 1, 0.3), Setting(3, 4, 0.3))


class RecordingDaemon(RealDaemon):
    trace = Path()

    def arguments(self) -> list[str]:
        return ["--record", str(self.trace)]


async def traffic(port: int, setting: Setting, count: int, chance: random.Random) -> None:
    """Requests that arrive whether or not the ones before were answered, and wait for all of them."""

    async def client(model: str, prompt: int, tokens: int, leaves: float) -> None:
        with trio.move_on_after(leaves):
            async with ApiClient(port) as api:
                options = {"num_predict": tokens, "seed": 1}
                await api.post("/api/generate", model=model, prompt=words(prompt), options=options)
                await api.records()

    with trio.fail_after(SERVED):
        await trio.lowlevel.checkpoint()
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                leaves = chance.uniform(0.02, 0.4) if chance.random() < LEAVES else SERVED
                (model,) = chance.choices(MODELS, WEIGHTS)
                nursery.start_soon(client, model, chance.randint(10, 600), chance.randint(20, 300), leaves)
                await trio.sleep(chance.expovariate(1 / setting.gap))


async def side_by_side(port: int, rounds: int) -> None:
    """Long answers of one model: one at a time, then two, then four."""

    async def stream() -> None:
        async with ApiClient(port) as api:
            options = {"num_predict": 600, "seed": 1}
            await api.post("/api/generate", model=MODELS[0], prompt=words(50), options=options)
            await api.records()

    with trio.fail_after(SERVED):
        await trio.lowlevel.checkpoint()
        for _ in range(rounds):
            for count in STREAMS:
                async with trio.open_nursery() as nursery:
                    for _ in range(count):
                        nursery.start_soon(stream)


def show_sharing(trace: Trace) -> None:
    """Tokens per second of each stream, as recorded and as the fitted cost of company has it."""
    rates, _ = calibrate(trace)
    alone = 1 / rates.of(f"{MODELS[0]}:latest").token
    print(f"| streams | tokens/s of each | with a cost of {rates.within:g} |\n|--:|--:|--:|")
    answers = [asked for asked in trace.requests if asked.seen is not None and asked.seen.first is not None]
    per_round = sum(STREAMS)
    for number, count in enumerate(STREAMS):
        before = sum(STREAMS[:number])
        group = [asked for place, asked in enumerate(answers) if before <= place % per_round < before + count]
        tokens = sum((asked.output_tokens or 0) - 1 for asked in group)
        seconds = sum(asked.seen.total - (asked.seen.first or 0) for asked in group if asked.seen is not None)
        print(f"| {count} | {tokens / seconds:.0f} | {alone / rates.slowdown(count - 1, 0):.0f} |", flush=True)
    print()


def record(store: Path, setting: Setting, to: Path, play: Callable[[int], Coroutine[object, object, None]]) -> Trace:
    daemon = RecordingDaemon(
        store,
        OLLAMA_MAX_LOADED_MODELS=str(setting.max_models),
        OLLAMA_NUM_PARALLEL=str(setting.parallel),
        OLLAMA_DEBUG="0",
    )
    daemon.trace = to
    with daemon:
        trio.run(play, daemon.port)
    return read_trace(to)


def plan(trace: Trace, rates: Rates) -> list[Row]:
    header = trace.header
    assert header is not None
    return planned(forecast(Plan(trace=trace, machine=from_header(header), rates=rates, policy=header.policy)))


def lines(words: str, real: Sequence[Row], *plans: Sequence[Row]) -> list[str]:
    """Table rows: each figure as it was, and what the forecasts say."""
    found = []
    for number, row in enumerate(real):
        cells = [
            [_cell(value) for value in (getattr(each, field) for each in (row, *(rows[number] for rows in plans)))]
            for field in ("loads", "evicted", "first_p50", "first_p95", "queue_p50", "queue_p95", "cancelled")
        ]
        found.append(f"| {words} | {row.name} | " + " | ".join(" / ".join(cell) for cell in cells) + " |")
    return found


class Errors:
    """How far off forecasts of figures were: seconds, and parts of the true figure."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._found: dict[str, list[tuple[float, float]]] = {}

    def add(self, real: Sequence[Row], forecast: Sequence[Row]) -> None:
        """Each model counts; the row of all does not."""
        for was, said in zip(real[:-1], forecast[:-1], strict=True):
            for field in ("loads", "first_p50", "first_p95", "queue_p95"):
                true, told = getattr(was, field), getattr(said, field)
                if true is not None and told is not None:
                    self._found.setdefault(field, []).append((abs(told - true), abs(told - true) / max(true, 1e-3)))

    def show(self) -> None:
        for field, pairs in self._found.items():
            seconds, parts = ([pair[which] for pair in pairs] for which in range(2))
            middle, most = median(seconds), max(seconds)
            print(f"| {self._words} | {field} | {middle:.3f} | {most:.3f} | {median(parts):.0%} |")


def _cell(value: float | None) -> str:
    if value is None or isinstance(value, int):
        return "-" if value is None else str(value)
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="keep the recordings here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store = OllamaStore(folder / "models")
        for seed, name in enumerate(MODELS):
            weights = write_tiny_gguf(folder / f"{name}.gguf", name=name, seed=seed)
            store.add(f"{name}:latest", weights.read_bytes(), params={"num_thread": 1})
        kept: Path = options.keep or folder
        kept.mkdir(exist_ok=True)
        show_sharing(record(store.root, Setting(1, 4, 0), kept / "streams.jsonl", partial(side_by_side, rounds=5)))
        print("Each cell: served / forecast.\n")
        print("| setting | model | loads | evicted | first p50 | first p95 | queue p50 | queue p95 | cancelled |")
        print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
        ahead, itself = Errors("of another run"), Errors("of the same run")
        for setting in SETTINGS:
            name = f"{setting.max_models}-{setting.parallel}"
            first, second = (
                record(
                    store.root,
                    setting,
                    kept / f"{name}-{number}.jsonl",
                    partial(
                        traffic,
                        setting=setting,
                        count=options.requests,
                        chance=random.Random(options.seed + number),
                    ),
                )
                for number in range(2)
            )
            rates, own = calibrate(first)[0], calibrate(second)[0]
            for trace, used, errors in ((second, rates, ahead), (second, own, itself), (first, rates, itself)):
                real, told = recorded(trace), plan(trace, used)
                errors.add(real, told)
                shown = lines(str(setting) if errors is ahead else f"{setting}, from itself", real, told)
                print("\n".join(shown if errors is ahead else shown[-1:]), flush=True)
        print("\n| rates | figure | median error | worst | median, of the figure |\n|---|---|--:|--:|--:|")
        ahead.show()
        itself.show()


if __name__ == "__main__":
    main()
