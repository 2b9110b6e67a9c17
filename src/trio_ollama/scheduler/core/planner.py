"""Ask for decisions until nothing more follows, and carry each of them out in the same step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .decisions import Abort, Because, Claim, Decision, Drain, Grant, Refuse, StartLoad, Wait
from .effects import Measure
from .generations import Generations
from .leases import Leases
from .loads import Loads
from .memo import Memo
from .plan import plan
from .queue import Queue
from .records import Runner
from .step import Step
from .view import FleetView

__all__ = ["Planner"]


class Planner:
    def __init__(
        self,
        step: Step,
        runners: Mapping[int, Runner],
        queue: Queue,
        leases: Leases,
        loads: Loads,
        generations: Generations,
        memo: Memo,
    ) -> None:
        self._step = step
        self._runners = runners
        self._queue = queue
        self._leases = leases
        self._loads = loads
        self._generations = generations
        self._memo = memo

    def replan(self, fleet: FleetView) -> None:
        """Passes until nothing more follows: bounded, as each further pass has something behind it."""
        for _ in range(3 + len(self._runners) + len(self._queue.waiters)):
            decisions = plan(fleet)
            self.apply(decisions)
            ended = self._generations.settle_idle()
            if not ended and not any(_has_consequences(decision) for decision in decisions):
                break
        else:
            raise AssertionError("the planner does not come to rest")
        if self._queue.measuring:
            self._step.emit(Measure())
        self.tidy()

    def apply(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Grant():
                    self._grant(decision)
                case StartLoad():
                    self._loads.begin(decision)
                case Abort(gen=gen):
                    self._generations.abort(self._runners[gen], decision.because)
                case Drain(gen=gen):
                    self._generations.drain(self._runners[gen], decision.because, decision)
                case Claim(seq=seq, gens=gens):
                    self._queue.claim(self._queue.waiters[seq], gens)
                case Refuse(seq=seq):
                    self._queue.refuse(seq, decision.because, decision.facts)
                case Wait():
                    self._queue.wait(decision)

    def tidy(self) -> None:
        """Forget what only matters while somebody waits."""
        if self._loads.retries:
            self._loads.tidy()
        if not self._queue.waiters:
            self._queue.overtakers.clear()
        self._memo.forget(unless_few=bool(self._queue.waiters))

    def _grant(self, grant: Grant) -> None:
        waiter, runner = self._queue.remove(grant.seq), self._runners[grant.gen]
        if waiter.demand.keep_alive is not None:
            runner.keep_alive = waiter.demand.keep_alive  # the last granted wins (R24)
        if grant.overtook:
            self._queue.overtaken(grant.seq, runner)
        self._leases.grant(grant, waiter)
        self._generations.disarm(runner)


def _has_consequences(decision: Decision) -> bool:
    """Whether others may fare differently after it. A last call makes a runner busy that was claimed while idle."""
    match decision:
        case StartLoad() | Abort() | Drain() | Refuse():
            return True
        case Grant(because=because):
            return because is Because.LAST_CALL
        case _:
            return False
