"""A seed played from the command line: to its end or to an instant, with its trace as lines and as a hash."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from trio_ollama.scheduler.core import events as ev
from trio_ollama.scheduler.core.decisions import Because, Decision
from trio_ollama.scheduler.core.lifecycle import Event, State

from .workloads import S, workload
from .world import OTHERS, World

__all__ = ["EVICTIONS", "Playback", "play"]

EVICTIONS = frozenset({Because.EVICTED_FOR, Because.RELOAD_FOR})


class _Enough(Exception):
    """The instant is reached at which the user wants to stop."""


class Playback(World):
    """The world of a seed. `error` is what broke in it; a broken rule is a line of the trace, too.

    `until`: seconds of simulated time after which nothing more happens. `each_line` gets every line of the trace, and
    whether it is a detail: a decision, of which most people only want to see the events that follow.
    """

    def __init__(
        self,
        seed: int,
        *,
        until: float | None = None,
        each_line: Callable[[str, bool], None] = lambda line, detail: None,
    ) -> None:
        super().__init__(workload(seed), seed, trace=self._record)
        self.seed = seed
        self.until = None if until is None else round(until * S)
        self.error: Exception | None = None
        self.evictions = 0
        self._each_line = each_line
        self._hash = sha256()
        self._detail = False

    def play(self) -> None:
        """To the end, the instant or the first broken rule; raises nothing."""
        try:
            self.run()
        except _Enough:
            return
        except Exception as error:
            self.error = error
            last = f"broken after {self.checks.steps} steps: {type(error).__name__} {error}"
        else:
            last = ", ".join(f"{count} {what}" for what, count in sorted(self.stats.items()))
        self._record(f"{self.now / S:10.3f} {last}")

    @property
    def digest(self) -> str:
        """The hash of all lines so far, details included."""
        return self._hash.hexdigest()

    @property
    def crashes(self) -> int:
        """Exits that nobody asked for, in whatever phase."""
        reached = self.fleet.reached
        return sum(reached[state, Event.EXITED] for state in State if state is not State.STOPPING)

    def at(self, when: int, what: Callable[[], None], rank: int = OTHERS) -> None:
        """What would happen too late ends the playback instead."""
        super().at(when, what if self.until is None or when <= self.until else self._stop_here, rank)

    def _stop_here(self) -> None:
        assert self.until is not None
        self.now = self.until
        raise _Enough

    def _record(self, line: str) -> None:
        self._hash.update(line.encode() + b"\n")
        self._each_line(line, self._detail)

    def _decided(self, decision: Decision) -> None:
        self._detail = True
        super()._decided(decision)
        self._detail = False

    def _happened(self, event: ev.Event) -> None:
        if isinstance(event, ev.DrainStarted) and event.because in EVICTIONS:
            self.evictions += 1
        super()._happened(event)


def play(seed: int, *, until: float | None = None, each_line: Callable[[str, bool], None] | None = None) -> Playback:
    """The world of a seed after it was played."""
    played = Playback(seed, until=until) if each_line is None else Playback(seed, until=until, each_line=each_line)
    played.play()
    return played
