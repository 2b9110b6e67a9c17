"""Rates from a recording: means for each model, after what others took from it is taken out.

Means, not medians: what a queue gets long by is all the time that work takes, its rare long parts included.

How much that is, is one pair of numbers for the whole recording: the cost of a call beside another one in the same
runner, and of a call beside another busy runner on the same devices. It is chosen from a grid, so that the times per
token of each model are as equal as can be.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median
from typing import Final

from .rates import DEFAULT, ModelRates, Rates
from .trace import Asked, Load, Trace

__all__ = ["Note", "calibrate"]

SAMPLES: Final = 400
"""Answers that sharing is fitted to, evenly spread over the recording."""
GRID: Final = tuple(step / 10 for step in range(16))
ENOUGH: Final = 0.1
"""Mean company from which on its cost can be told."""

Note = str


@dataclass(frozen=True, slots=True)
class _Answer:
    """One answer that was streamed: its times, and the company it had on average."""

    model: str
    tokens: int
    """After the first one."""
    seconds: float
    """That they took, as seen."""
    others: float
    runners: float


def calibrate(trace: Trace) -> tuple[Rates, list[Note]]:
    """The rates, and what could not be measured, in words."""
    notes: list[Note] = []
    works = _Works(trace)
    answers = works.answers()
    within, beside = _sharing(answers, notes)
    usual, load_byte, constants = _loads(trace, notes)
    models, guessed = {}, defaultdict[str, list[str]](list)
    for name in sorted({asked.model for asked in trace.requests}):
        missing = []
        own = [answer for answer in answers if answer.model == name]
        alone = sum(answer.seconds / (1 + within * answer.others + beside * answer.runners) for answer in own)
        token = alone / sum(answer.tokens for answer in own) if own else DEFAULT.token
        prefill = works.prefill(name, within, beside)
        overhead = works.overhead(name)
        if not own and any(asked.model == name and asked.what == "generate" for asked in trace.requests):
            missing.append(f"{1 / DEFAULT.token:g} tokens/s")
        if prefill is None:
            missing.append(f"{DEFAULT.prefill:g} tokens/s of a prompt")
        if missing:
            guessed[" and ".join(missing)].append(name)
        models[name] = ModelRates(
            load_constant=constants.get(name, usual),
            token=token,
            prefill=prefill or DEFAULT.prefill,
            overhead=DEFAULT.overhead if overhead is None else overhead,
        )
    notes += [f"{', '.join(names)}: {what} taken, nothing was recorded" for what, names in guessed.items()]
    gone = fmean(trace.exit_times) if trace.exit_times else Rates().exit
    usual_rates = ModelRates(load_constant=usual)
    rates = Rates(models=models, usual=usual_rates, load_byte=load_byte, within=within, beside=beside, exit=gone)
    return rates, notes


class _Works:
    """When which runner worked for which request, and on which devices."""

    def __init__(self, trace: Trace) -> None:
        self._requests = [asked for asked in trace.requests if asked.seen is not None]
        self._devices = {load.gen: load.devices for load in trace.loads}
        self._spans: list[tuple[float, float, int]] = sorted(self._span(asked) for asked in self._working())

    def _working(self) -> Iterable[Asked]:
        return (asked for asked in self._requests if asked.seen and asked.seen.gen and asked.what != "load")

    @staticmethod
    def _span(asked: Asked) -> tuple[float, float, int]:
        """From the first work for its prompt to its end."""
        seen = asked.seen
        assert seen is not None
        begin = asked.at + (seen.queue or 0) + (seen.load or 0)
        return begin, asked.at + seen.total, seen.gen or 0

    def company(self, begin: float, end: float, gen: int) -> tuple[float, float]:
        """Mean number of other calls of the same runner, and of other busy runners on its devices."""
        if end <= begin:
            return 0.0, 0.0
        mine, others = 0.0, defaultdict[int, list[tuple[float, float]]](list)
        for other_begin, other_end, other in self._spans:
            if other_begin >= end:
                break
            overlap = min(end, other_end) - max(begin, other_begin)
            if overlap <= 0:
                continue
            if other == gen:
                mine += overlap
            elif self._devices.get(other, frozenset()) & self._devices.get(gen, frozenset()):
                others[other].append((max(begin, other_begin), min(end, other_end)))
        length = end - begin
        return max(0.0, mine / length - 1), sum(_union(spans) for spans in others.values()) / length

    def answers(self) -> list[_Answer]:
        found = []
        for asked in _spread(self._requests, SAMPLES):
            seen, tokens = asked.seen, asked.output_tokens or 0
            if seen is None or seen.outcome != "answered" or seen.first is None or seen.gen is None or tokens < 2:
                continue
            begin, end = asked.at + seen.first, asked.at + seen.total
            if end > begin:
                others, runners = self.company(begin, end, seen.gen)
                found.append(_Answer(seen.model, tokens - 1, end - begin, others, runners))
        return found

    def prefill(self, model: str, within: float, beside: float) -> float | None:
        """Tokens of a prompt per second, alone. None if nothing tells."""
        tokens, seconds = 0, 0.0
        for asked in _spread([asked for asked in self._working() if asked.model == model], SAMPLES):
            seen, new = asked.seen, (asked.prompt_tokens or 0) - asked.cached_tokens
            if seen is None or seen.outcome != "answered" or seen.first is None or new <= 0:
                continue
            took = seen.prompt_time or (
                seen.first - (seen.queue or 0) - (seen.load or 0) if asked.what == "embed" else 0
            )
            if took <= 0:
                continue
            end = asked.at + seen.first
            others, runners = self.company(end - took, end, seen.gen or 0)
            tokens += new
            seconds += took / (1 + within * others + beside * runners)
        return tokens / seconds if seconds else None

    def overhead(self, model: str) -> float | None:
        """Seconds to the first token that are neither wait nor prompt."""
        found = [
            seen.first - (seen.queue or 0) - (seen.load or 0) - seen.prompt_time
            for asked in self._working()
            if asked.model == model
            and (seen := asked.seen) is not None
            and seen.first is not None
            and seen.prompt_time is not None
        ]
        return max(0.0, fmean(found)) if found else None


def _sharing(answers: Sequence[_Answer], notes: list[Note]) -> tuple[float, float]:
    """The costs of company, each from the grid if the recording has enough of it."""
    usual = Rates()
    by_model: dict[str, list[_Answer]] = defaultdict(list)
    for answer in answers:
        by_model[answer.model].append(answer)
    count = max(1, len(answers))
    within = GRID if sum(answer.others for answer in answers) / count >= ENOUGH else (usual.within,)
    beside = GRID if sum(answer.runners for answer in answers) / count >= ENOUGH else (usual.beside,)
    if len(within) == 1:
        notes.append(f"hardly two calls in one runner at once: each further one is taken to cost {usual.within:g}")
    if len(beside) == 1:
        notes.append(f"hardly two busy runners on a device at once: each is taken to cost {usual.beside:g}")

    def spread(pair: tuple[float, float]) -> float:
        total = 0.0
        for group in by_model.values():
            alone = [
                math.log(answer.seconds / answer.tokens / (1 + pair[0] * answer.others + pair[1] * answer.runners))
                for answer in group
            ]
            middle = median(alone)
            total += sum(abs(value - middle) for value in alone)
        return total

    return min(product(within, beside), key=spread)


def _loads(trace: Trace, notes: list[Note]) -> tuple[float, float, dict[str, float]]:
    """A usual constant, seconds per byte, and each model's own constant: together each model's mean."""
    by_model: dict[str, list[Load]] = defaultdict(list)
    for load in trace.loads:
        if not load.failed:
            by_model[load.model].append(load)
    usual = Rates()
    if not by_model:
        notes.append(f"no load was recorded: {DEFAULT.load_constant:g} s and 1 s for each GiB are taken")
        return DEFAULT.load_constant, usual.load_byte, {}
    sizes = {model: trace.facts(model).file_size for model in by_model}
    points = [(sizes[model], fmean(load.seconds for load in loads)) for model, loads in by_model.items()]
    slope = _slope(points)
    if slope is None:
        notes.append("only one size of model was loaded: all of its time counts as constant")
        slope = 0.0
    constants = {
        model: max(0.0, fmean(load.seconds for load in loads) - slope * sizes[model])
        for model, loads in by_model.items()
    }
    return fmean(constants.values()), slope, constants


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Of the line through them, never falling (least squares); None where sizes hardly differ."""
    sizes = [size for size, _ in points]
    if max(sizes) < 1.2 * min(sizes):
        return None
    middle = sum(sizes) / len(points)
    spread = sum((size - middle) ** 2 for size in sizes)
    return max(0.0, sum((size - middle) * seconds for size, seconds in points) / spread)


def _union(spans: Sequence[tuple[float, float]]) -> float:
    """Length of what at least one of them covers; they are sorted by their begin."""
    total, reached = 0.0, -math.inf
    for begin, end in spans:
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _spread(items: Sequence[Asked], count: int) -> Sequence[Asked]:
    """At most about `count` of them, evenly chosen."""
    return items[:: max(1, len(items) // count)]
