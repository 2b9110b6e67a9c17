"""A run as a picture: devices with stacked bytes, runners by state, requests by stage, over one axis of time.

Colour says which model, texture says which state; so a model is followed from its request to its runner to its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, zip_longest
from statistics import median
from typing import Final

from simulations.fleet.history import History, Mark, RequestLife, RunnerLife
from simulations.fleet.workloads import S
from trio_ollama.scheduler.core.events import human_bytes
from trio_ollama.scheduler.core.lifecycle import State
from trio_ollama.scheduler.core.stages import Stage
from trio_ollama.scheduler.core.values import RAM

from .legend import legend
from .palette import ALARM, COLOURS, FAINT, HATCH, LINE, PAPER, STAGES, STYLE, sign, stop
from .svg import element, polygon, text

__all__ = ["draw"]

WIDTH: Final = 1400
LEFT, RIGHT = 150, 1370
"""Where the axis of time begins and ends."""
MOST_REQUESTS: Final = 40


def draw(history: History) -> str:
    """The SVG of a history that was played."""
    return _Picture(history).document()


class _Picture:
    def __init__(self, history: History) -> None:
        self.history = history
        self.parts: list[str] = []
        self.y = 0.0
        models = [name for name, _ in history.work.models]
        self.colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(models)}
        self.end = self._end()
        self.device_height = 0.0

    def _end(self) -> int:
        """A little after the last request has ended: what follows is keep-alive."""
        history = self.history
        instants = [history.now if request.outcome is None else request.ended_at for request in history.requests]
        return min(history.now, round(max(instants, default=0) * 1.02) + S // 2) or S

    def document(self) -> str:
        self._head()
        top = self.y
        devices = self._devices()
        self.device_height = 84.0 if len(devices) > 1 else 120.0
        for id_ in devices:
            self._device(id_)
        self._runners()
        self._everybody()
        self._requests()
        grid = self._grid(top)
        self.add(*legend(LEFT, self.y))
        self.y += 74
        return element(
            "svg",
            element("style", STYLE),
            element("defs", HATCH),
            element("rect", width=WIDTH, height=self.y, fill=PAPER),
            grid,
            *self.parts,
            xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {self.y:.0f}", width=WIDTH, height=self.y,
        )  # fmt: skip

    # -- helpers --------------------------------------------------------------------------------------------------

    def x(self, at: int) -> float:
        return LEFT + (RIGHT - LEFT) * min(at, self.end) / self.end

    def add(self, *parts: str) -> None:
        self.parts += parts

    def bar(self, since: int, until: int, y: float, height: float, *, least: float = 0.8, **more: str) -> str:
        x = self.x(since)
        return element("rect", x=x, y=y, width=max(least, self.x(until) - x), height=height, **more)

    def label(self, y: float, words: str, small: str = "") -> None:
        self.add(text(LEFT - 14, y, words, class_="h e"))
        if small:
            self.add(text(LEFT - 14, y + 15, small, class_="s e"))

    def lane(self, height: float) -> float:
        """Its top; the next lane begins below it."""
        top = self.y
        self.y += height + 22
        return top

    # -- the parts ------------------------------------------------------------------------------------------------

    def _head(self) -> None:
        history = self.history
        stats = history.stats
        figures = (
            (len(history.requests), "request"), (stats["StartLoad"], "load"), (history.evictions, "eviction"),
            (stats["cancelled"], "cancel"), (history.crashes, "crash"),
        )  # fmt: skip
        words = ", ".join(f"{count} {what}{_plural(what, count)}" for count, what in figures)
        policy = history.work.policy
        rules = f"{policy.num_parallel or 1} parallel, at most {policy.overtakes} may overtake a claim"
        self.add(text(24, 40, f"Seed {history.seed}: {history.work.kind}", class_="t"))
        self.add(text(24, 62, f"{words}; {rules}. Colour says which model, texture says which state.", class_="s"))
        if history.error is not None:
            self.add(text(24, 82, f"BROKEN at {history.now / S:.3f} s: {history.error}", fill=ALARM, class_="h"))
        self.y = 100

    def _devices(self) -> list[str]:
        """GPUs, and RAM where somebody uses more than a little of it."""
        sizes = self.history.driver.sizes
        peak = max((life.reservation.get(RAM, 0) for life in self.history.lives.values()), default=0)
        return [id_ for id_ in sizes if id_ != RAM or peak > sizes[RAM] / 20]

    def _device(self, id_: str) -> None:
        """Bytes reserved by each runner, stacked in order of loading, up to the line of the capacity."""
        height, size = self.device_height, self.history.driver.sizes[id_]
        top = self.lane(height)
        bottom = top + height
        self.label(top + 14, "RAM" if id_ == RAM else f"GPU {id_[1:]}", human_bytes(size))
        lives = [life for life in self.history.lives.values() if life.reservation.get(id_)]
        instants = sorted({at for life in lives for at in (_began(life), self._ended(life)) if at <= self.end})
        scale = height / size
        names = []
        for life in lives:
            upper: list[tuple[float, float]] = []
            lower: list[tuple[float, float]] = []
            own = [at for at in instants if _began(life) <= at <= self._ended(life)]
            for since, until in pairwise([*own, self.end] if self._ended(life) > self.end else own):
                below = sum(
                    other.reservation[id_] for other in lives if self._holds(other, since) and other.gen < life.gen
                )
                y = bottom - below * scale
                lower += [(self.x(since), y), (self.x(until), y)]
                y -= life.reservation[id_] * scale
                upper += [(self.x(since), y), (self.x(until), y)]
            title = f"{life.model}, generation {life.gen}: {human_bytes(life.reservation[id_])} reserved on {id_}"
            if upper:
                self.add(
                    polygon(
                        [*upper, *reversed(lower)], title=title, fill=self.colours[life.model], fill_opacity=".78",
                        stroke=PAPER, stroke_width=0.8,
                    )
                )  # fmt: skip
                width, x, y = max((until - since, since, y) for (since, y), (until, _) in pairwise(upper))
                if width > 9 * len(life.model) and life.reservation[id_] * scale > 13:
                    names.append(text(x + 6, y + 12, life.model, class_="b"))
        self.add(*names)
        self.add(
            element("line", x1=LEFT, x2=RIGHT, y1=bottom, y2=bottom, stroke=FAINT, stroke_width=0.8),
            element("line", x1=LEFT, x2=RIGHT, y1=top, y2=top, stroke=ALARM, stroke_width=1, stroke_dasharray="6 4"),
        )

    def _holds(self, life: RunnerLife, at: int) -> bool:
        return _began(life) <= at < self._ended(life)

    def _ended(self, life: RunnerLife) -> int:
        return self.history.now + 1 if life.ended is None else life.ended

    def _runners(self) -> None:
        """A row per model; generations that overlap (memory that still comes back) get one more."""
        rows: list[list[RunnerLife]] = []
        for model in self.colours:
            mine: list[list[RunnerLife]] = []
            for life in self.history.lives.values():
                if life.model == model:
                    free = next((row for row in mine if self._ended(row[-1]) <= _began(life)), None)
                    if free is None:
                        mine.append([life])
                    else:
                        free.append(life)
            rows += mine
        step = 26
        top = self.lane(step * max(1, len(rows)))
        self.label(top - 6, "Runners")
        marks: dict[int, list[Mark]] = {}
        for mark in self.history.marks:
            marks.setdefault(mark.gen, []).append(mark)
        named: set[str] = set()
        for index, row in enumerate(rows):
            y = top + index * step + 6
            model = row[0].model
            if model not in named:
                named.add(model)
                self.add(text(LEFT - 14, y + 12, model, class_="e", fill=self.colours[model], font_weight="600"))
            for life in row:
                self._runner(life, y)
            for life in row:
                self._runner_marks(marks.get(life.gen, ()), y)

    def _runner(self, life: RunnerLife, y: float) -> None:
        parts = []
        colour = self.colours[life.model]
        widest = (0.0, 0.0)
        ends = [since for since, _ in life.states[1:]] + [min(self._ended(life), self.end)]
        for (since, state), until in zip(life.states, ends, strict=True):
            if state is not State.GONE and (since < self.end or until <= since):
                parts += self._state(state, since, until, y, colour)
                if state in (State.READY, State.DRAINING):
                    widest = max(widest, (self.x(until) - self.x(since), self.x(since)))
        name = f"{life.model} #{life.gen}"
        if widest[0] > 7 * len(name) + 14:
            parts.append(text(widest[1] + 8, y + 12.5, name, class_="b"))
        story = ", ".join(f"{state} at {since / S:.2f} s" for since, state in life.states)
        over = f", gone at {life.ended / S:.2f} s" if life.ended is not None else ""
        title = f"{life.model}, generation {life.gen} ({life.kind}): {story}{over}"
        self.add(element("g", *parts, title=title, id=f"runner-{life.gen}"))

    def _state(self, state: State, since: int, until: int, y: float, colour: str) -> list[str]:
        match state:
            case State.SPAWNING | State.LOADING:
                return [self.bar(since, until, y, 17, fill=colour), self.bar(since, until, y, 17, fill="url(#loading)")]
            case State.READY:
                return [self.bar(since, until, y, 17, fill=colour)]
            case State.DRAINING:
                return [self.bar(since, until, y, 17, fill=colour, fill_opacity=".5")]
            case _:
                return [self.bar(since, until, y + 5, 7, fill="#d0d7de" if state is State.RECOVERING else "#8c959f")]

    def _runner_marks(self, marks: Sequence[Mark], y: float) -> None:
        crashes = {mark.at for mark in marks if mark.kind == "crash"}
        for mark in marks:
            same = mark.kind == "failed load" and mark.at in crashes
            if mark.at <= self.end and not same:
                self.add(sign(mark.kind, self.x(mark.at), y + 8.5, f"{mark.at / S:.2f} s: {mark.text}"))

    def _everybody(self) -> None:
        """How many requests wait (below) and run (above): all of them, whether they get a row or not."""
        height = 56.0
        changes: list[tuple[int, int, int]] = []
        for life in self.history.request_lives:
            for since, until, stage in self._stages(life):
                running = int(stage is Stage.RUNNING)
                changes += [(since, 1 - running, running), (until, running - 1, -running)]
        changes.sort()
        points = [(0, 0, 0)]
        for at, waiting, running in changes:
            before = points.pop() if points[-1][0] == at else points[-1]
            points.append((at, before[1] + waiting, before[2] + running))
        most = max(waiting + running for _, waiting, running in points) or 1
        top = self.lane(height)
        bottom = top + height
        self.label(top + 14, "All requests", f"{most} at once at most")
        bottoms = [0] * len(points)
        stacked = ([p[1] for p in points], "#c3cad3", "waiting"), ([p[2] for p in points], "#57606a", "running")
        for amounts, colour, what in stacked:
            tops = [below + amount for below, amount in zip(bottoms, amounts, strict=True)]
            upper = _steps([self.x(p[0]) for p in points], [bottom - height * n / most for n in tops], RIGHT)
            lower = _steps([self.x(p[0]) for p in points], [bottom - height * n / most for n in bottoms], RIGHT)
            self.add(polygon([*upper, *reversed(lower)], title=what, fill=colour))
            bottoms = tops
        self.add(element("line", x1=LEFT, x2=RIGHT, y1=bottom, y2=bottom, stroke=FAINT, stroke_width=0.8))

    def _stages(self, life: RequestLife) -> list[tuple[int, int, Stage]]:
        """(since, until, stage)"""
        request = life.request
        ended = self.history.now if request.outcome is None else request.ended_at
        ends = [since for since, _ in life.stages[1:]] + [ended]
        return [(since, until, stage) for (since, stage), until in zip(life.stages, ends, strict=True)]

    def _requests(self) -> None:
        """A thin row each, in order of arrival. If there are too many: cancelled ones, others that were not served, and
        those that waited longest; none of these takes all the rows.
        """
        lives = self.history.request_lives
        ranked = sorted(lives, key=lambda life: (-self._waited(life), life.number))
        groups: dict[str, list[RequestLife]] = {"cancelled": [], "other": [], "done": []}
        for life in ranked:
            groups.get(life.request.outcome or "done", groups["other"]).append(life)
        turns = [life for turn in zip_longest(*groups.values()) for life in turn if life is not None]
        shown = sorted(turns[:MOST_REQUESTS], key=lambda life: life.number)
        rest = turns[MOST_REQUESTS:]
        step = 10
        top = self.lane(step * len(shown) + (18 if rest else 0))
        self.label(top + 10, "Requests", f"{len(shown)} of {len(lives)}" if rest else "in order of arrival")
        for index, life in enumerate(shown):
            self._request(life, top + index * step + 1)
        if rest:
            done = sum(life.request.outcome == "done" for life in rest)
            waited = median(self._waited(life) for life in rest) / S
            words = f"and {len(rest)} more: {done} of them done, median wait {waited:.2f} s"
            self.add(text(LEFT, top + step * len(shown) + 14, words, class_="s"))

    def _waited(self, life: RequestLife) -> int:
        return sum(until - since for since, until, stage in self._stages(life) if stage is not Stage.RUNNING)

    def _request(self, life: RequestLife, y: float) -> None:
        request, model = life.request, life.request.arrival.demand.model.name
        parts = []
        for since, until, stage in self._stages(life):
            colour = self.colours[model] if stage is Stage.RUNNING else STAGES[stage]
            parts.append(self.bar(since, until, y, 7, least=1.5 if stage is Stage.RUNNING else 0.4, fill=colour))
        outcome = request.outcome or "not done yet"
        x = self.x(self.history.now if request.outcome is None else request.ended_at)
        if outcome == "cancelled":
            parts.append(sign("cancel", x, y + 3.5))
        elif outcome != "done" and request.outcome is not None:
            parts.append(stop(x + 3, y + 3.5))
        waited = self._waited(life) / S
        story = f"arrives {request.arrival.at / S:.2f} s, waits {waited:.2f} s, {outcome}"
        title = f"request {life.number} for {model}: {story}"
        self.add(element("g", *parts, title=title))

    def _grid(self, top: float) -> str:
        seconds = self.end / S
        step = next(
            (step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600) if seconds / step <= 14), 3600
        )
        bottom = self.y - 16
        parts = []
        for tick in range(int(seconds / step) + 1):
            x = self.x(round(tick * step * S))
            parts.append(element("line", x1=x, x2=x, y1=top - 8, y2=bottom, stroke=LINE, stroke_width=0.8))
            parts.append(text(x, bottom + 16, f"{tick * step:g} s", class_="s m"))
        self.y += 26
        return element("g", *parts)


def _began(life: RunnerLife) -> int:
    return life.states[0][0]


def _plural(what: str, count: int) -> str:
    return "" if count == 1 else "es" if what.endswith("sh") else "s"


def _steps(xs: Sequence[float], ys: Sequence[float], end: float) -> list[tuple[float, float]]:
    """The corners of a line that keeps each value until the next one."""
    corners = []
    for x, until, y in zip(xs, [*xs[1:], end], ys, strict=True):
        corners += [(x, y), (until, y)]
    return corners
