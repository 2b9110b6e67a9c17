"""Faults in the fleet's steps: slots and leases, claims, keep-alive, what follows from the end of a runner."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

__all__ = ["MUTANTS"]

FLEET: Final = "trio_ollama.scheduler.core.fleet"
LEASES: Final = "trio_ollama.scheduler.core.leases"
QUEUE: Final = "trio_ollama.scheduler.core.queue"
LOADS: Final = "trio_ollama.scheduler.core.loads"
GENERATIONS: Final = "trio_ollama.scheduler.core.generations"
PLANNER: Final = "trio_ollama.scheduler.core.planner"
FIGURES: Final = "trio_ollama.scheduler.core.figures"
CRASHES: Final = "trio_ollama.scheduler.core.crashes"
LIFECYCLE: Final = "trio_ollama.scheduler.core.lifecycle"
RECORDS: Final = "trio_ollama.scheduler.core.records"

MUTANTS: Final = (
    # leases and slots
    Mutant(
        name="release-by-key",
        module=LEASES,
        old="        runner = self._runners[gen]\n        lease = runner.leases.pop(seq)",
        new="        key = self._runners[gen].key\n"
        "        runner = next(runner for runner in self._runners.values() if runner.key == key)\n"
        "        lease = runner.leases.pop(seq)",
        mistake="a lease is given back to whichever runner its model has, not to the generation it is of (I03, R13)",
    ),
    Mutant(
        name="double-release",
        module=LEASES,
        old="gen = self._gens.pop(seq, None)",
        new="gen = self._gens.get(seq)",
        mistake="a lease may be given back twice",
    ),
    Mutant(
        name="slot-leaks-at-release",
        module=LEASES,
        old="        self._take_back(runner, lease, settled=settled)\n        self._hand_out(runner)\n"
        "        return runner",
        new="        if not lease.holds_slot:\n            self._take_back(runner, lease, settled=settled)\n"
        "        self._hand_out(runner)\n        return runner",
        mistake="a request that is done keeps its slot",
    ),
    Mutant(
        name="slot-handed-to-nobody",
        module=LEASES,
        old="        self._hand_out(runner)\n        return runner",
        new="        return runner",
        mistake="a slot comes back, and nobody of those who wait for one is told (R11)",
    ),
    Mutant(
        name="settled-slot-handed-to-nobody",
        module=LEASES,
        old="            runner.held_slots -= 1\n            self._hand_out(runner)",
        new="            runner.held_slots -= 1",
        mistake="the same where the child has confirmed it",
    ),
    Mutant(
        name="last-come-first-served",
        module=LEASES,
        old="runner.slot_queue.popleft()",
        new="runner.slot_queue.pop()",
        mistake="slots go to whoever came last (I12)",
    ),
    Mutant(
        name="one-slot-too-many",
        module=LEASES,
        old="while runner.slot_queue and runner.held_slots < runner.slots:",
        new="while runner.slot_queue and runner.held_slots <= runner.slots:",
        mistake="off by one",
    ),
    Mutant(
        name="wish-for-a-slot-stays",
        module=LEASES,
        old="        self._take_back(runner, lease, settled=settled)\n        self._hand_out(runner)\n"
        "        return runner",
        new="        if lease.holds_slot:\n            self._take_back(runner, lease, settled=settled)\n"
        "        self._hand_out(runner)\n        return runner",
        mistake="a request that leaves the queue for a slot gets one all the same",
    ),
    Mutant(
        name="drained-but-not-stopped",
        module=FLEET,
        old="            if runner.state is State.DRAINING:\n"
        "                self._generations.advance(runner, Event.STOP)\n            self._replan()",
        new="            self._replan()",
        mistake="the last request of a draining runner ends, and the runner stays",
    ),
    Mutant(
        name="release-without-a-pass",
        module=FLEET,
        old="                self._generations.advance(runner, Event.STOP)\n            self._replan()\n\n"
        "    def want_slot",
        new="                self._generations.advance(runner, Event.STOP)\n\n    def want_slot",
        mistake="a runner becomes idle, and nobody looks who waits for that",
    ),
    # claims
    Mutant(
        name="claim-outlives-its-waiter",
        module=QUEUE,
        old="        self.claim(waiter, NOTHING)\n",
        new="",
        mistake="who leaves the queue keeps others from the runner it wanted gone (I10)",
    ),
    Mutant(
        name="claim-without-watchdog",
        module=QUEUE,
        old="            self._step.emit(Rearm(gen))  # somebody waits",
        new="            pass  # somebody waits",
        mistake="a claim does not start the bound on how long its runner may be silent (R81)",
    ),
    Mutant(
        name="drain-without-watchdog",
        module=GENERATIONS,
        old="        else:\n            self._step.emit(Rearm(runner.gen))\n\n    def abort",
        new="\n    def abort",
        mistake="a drain does not start the bound on how long its runner may be silent (R81)",
    ),
    Mutant(
        name="budget-not-counted",
        module=PLANNER,
        old="        if grant.overtook:",
        new="        if False:",
        mistake="later requests may overtake an earlier one without end (I23)",
    ),
    Mutant(
        name="admission-forgotten",
        module=QUEUE,
        old="            self.measuring.discard(waiter.seq)\n            waiter.admitted = True",
        new="            self.measuring.discard(waiter.seq)",
        mistake="who was let in may still be refused for a full queue (I13)",
    ),
    # keep-alive
    Mutant(
        name="absent-keep-alive-overrides",
        module=PLANNER,
        old="        if waiter.demand.keep_alive is not None:\n"
        "            runner.keep_alive = waiter.demand.keep_alive",
        new="        if waiter.demand.keep_alive != runner.keep_alive:\n"
        "            default, said = self._loads._policy.keep_alive, waiter.demand.keep_alive\n"
        "            runner.keep_alive = default if said is None else said",
        mistake="a request that says nothing about keep-alive resets it (R24)",
    ),
    Mutant(
        name="not-disarmed",
        module=PLANNER,
        old="        self._generations.disarm(runner)\n",
        new="",
        mistake="a request does not stop the keep-alive, which ends as it was once set (R22)",
    ),
    Mutant(
        name="expiry-of-the-busy",
        module=FLEET,
        old="runner.state is not State.READY or runner.busy:\n            return\n        if runner"
        ".deadline is not None and now",
        new="runner.state is not State.READY:\n            return\n        if runner.deadline is None or now",
        mistake="a timer that fires late ends a runner which has work (R21)",
    ),
    Mutant(
        name="timer-of-an-earlier-idleness",
        module=FLEET,
        old="if runner.deadline is not None and now >= runner.deadline:",
        new="if runner.deadline is not None:",
        mistake="a timer of an earlier idle period ends the present one (R21)",
    ),
    # starting and ending
    Mutant(
        name="loaded-after-abort",
        module=FLEET,
        old="        if not runner.loading:\n            return  # aborted in the same instant",
        new="        if False:\n            return  # aborted in the same instant",
        mistake="a load that is done in the instant in which it is given up counts as ready",
    ),
    Mutant(
        name="draining-undone",
        module=FLEET,
        old="if runner.closed_after is not None and runner.state is State.READY:",
        new="if False:",
        mistake="a stop during a load is forgotten when the load is done (R26)",
    ),
    Mutant(
        name="stop-shuts-out-the-waiting",
        module=FLEET,
        old="runner.closed_after, runner.drain_because = self._queue.last_seq, because",
        new="runner.closed_after, runner.drain_because = 0, because",
        mistake="a stop during a load takes it from those who wait for it (R26)",
    ),
    Mutant(
        name="stop-under-leases",
        module=GENERATIONS,
        old="        self.advance(runner, Event.DRAIN)\n        if not runner.leases:",
        new="        self.advance(runner, Event.DRAIN)\n        if True:",
        mistake="a runner is stopped while requests are served by it (I04)",
    ),
    Mutant(
        name="kill-without-a-pass",
        module=FLEET,
        old="        self._generations.kill(runner, because, error)\n        self._replan()",
        new="        self._generations.kill(runner, because, error)",
        mistake="a runner is ended, and nobody looks who waits for that",
    ),
    Mutant(
        name="exit-without-a-pass",
        module=FLEET,
        old="        self._generations.advance(runner, Event.EXITED, error, out_of_memory=out_of_memory)\n"
        "        self._replan()",
        new="        self._generations.advance(runner, Event.EXITED, error, out_of_memory=out_of_memory)",
        mistake="the same for a process that ended",
    ),
    Mutant(
        name="only-the-idle-drain",
        module=FLEET,
        old="            if runner.state is State.READY:\n"
        "                self._generations.drain(runner, Because.RUNTIME_OOM)",
        new="            if runner.state is State.READY and not runner.busy:\n"
        "                self._generations.drain(runner, Because.RUNTIME_OOM)",
        mistake="a call runs out of memory, and the runners that hold it stay (R51)",
    ),
    Mutant(
        name="close-is-not-remembered",
        module=FLEET,
        old="        self._queue.closed = True\n",
        new="",
        mistake="new requests are served although the server shuts down (R68)",
    ),
    Mutant(
        name="close-without-a-pass",
        module=FLEET,
        old="                self._generations.advance(runner, Event.STOP)\n        self._replan()\n\n    def report",
        new="                self._generations.advance(runner, Event.STOP)\n\n    def report",
        mistake="those who wait are not told that the server shuts down",
    ),
    Mutant(
        name="stuck-unmarked",
        module=FLEET,
        old="            runner.stuck = True\n",
        new="",
        mistake="a process that cannot be killed is waited for without end (R71)",
    ),
    Mutant(
        name="failure-told-to-nobody",
        module=LOADS,
        old="            self._queue.remove(seq)\n            self._step.emit(Refused(seq, because, error))",
        new="            self._queue.remove(seq)",
        mistake="a load fails, and those who wait for it are not told",
    ),
    Mutant(
        name="failure-told-to-all",
        module=LOADS,
        old="if waiter.key == runner.key and runner.open_to(seq) and difference(runner.config, waiter.wanted) is None",
        new="if waiter.key == runner.key",
        mistake="a load fails, and those who want the model with other options get the error, too",
    ),
    Mutant(
        name="loss-told-to-nobody",
        module=LEASES,
        old="            self._step.emit(Lost(seq, because, error))\n",
        new="",
        mistake="a runner is ended, and its leases are not told",
    ),
    Mutant(
        name="retries-without-end",
        module=LOADS,
        old="        if key in self.retries or self._queue.closed:",
        new="        if self._queue.closed:",
        mistake="a load that runs out of memory is tried again and again (R48)",
    ),
    Mutant(
        name="abandoned-load-goes-on",
        module=FLEET,
        old="        if departure_changes_nothing(self, waiter):",
        new="        if True:",
        mistake="the last one leaves a load, which goes on for nobody (R03)",
    ),
    Mutant(
        name="rest-too-early",
        module=PLANNER,
        old="        case StartLoad() | Abort() | Drain() | Refuse():",
        new="        case StartLoad() | Abort() | Refuse():",
        mistake="the planner is not asked again after a runner has been stopped",
    ),
    # figures
    Mutant(
        name="figures-from-before-the-exit",
        module=FIGURES,
        old="        if started >= self._changed_at:\n            self._measured_at = self._step.now",
        new="        self._measured_at = self._step.now",
        mistake="a look that began before a process ended counts as fresh (R35)",
    ),
    Mutant(
        name="exit-leaves-figures-fresh",
        module=FIGURES,
        old="self._measured_at, self._changed_at = None, self._step.now",
        new="pass",
        mistake="figures from before an exit count as fresh (R35)",
    ),
    Mutant(
        name="figures-never-age",
        module=FIGURES,
        old="return self._measured_at is not None and self._step.now - self._measured_at <= FACTS_MAX_AGE",
        new="return self._measured_at is not None",
        mistake="loads are started on figures of any age (R35)",
    ),
    Mutant(
        name="lost-reservation",
        module=LOADS,
        old="            placement.reservation,\n            self._policy.keep_alive",
        new="            dict.fromkeys(placement.reservation, 0),\n            self._policy.keep_alive",
        mistake="a runner that loads has nothing reserved, so that others are given the same memory (I07)",
    ),
    Mutant(
        name="reservation-gone-before-the-process",
        module=RECORDS,
        old="return {} if self.state is State.GONE else {**self.reservation, MODELS: 0}",
        new="return {}",
        mistake="memory counts as free when its process is asked to end, not when it is back (R31)",
    ),
    Mutant(
        name="crashes-not-counted",
        module=GENERATIONS,
        old="                    self._crashes.note(runner.key, text, self._step.now)\n",
        new="                    pass\n",
        mistake="a model whose runner dies under every request is loaded without end (R78)",
    ),
    Mutant(
        name="one-crash-too-many",
        module=CRASHES,
        old="if count >= self._limit else 0",
        new="if count > self._limit else 0",
        mistake="off by one (R78)",
    ),
    Mutant(
        name="back-off-for-ever",
        module=CRASHES,
        old="return row[1] if row is not None and now < row[2] else None",
        new="return row[1] if row is not None and row[2] else None",
        mistake="a model that was refused for its crashes is refused for good (R78)",
    ),
    Mutant(
        name="killed-with-leases",
        module=LIFECYCLE,
        old="(S.READY, E.KILL): Transition(S.STOPPING, (C.CLOSE, C.STOP, C.LOSE_LEASES)),",
        new="(S.READY, E.KILL): Transition(S.STOPPING, (C.CLOSE, C.STOP)),",
        mistake="a runner is ended by force and its requests keep their leases (I02)",
    ),
    Mutant(
        name="died-loading-in-silence",
        module=LIFECYCLE,
        old="(S.LOADING, E.EXITED): Transition(S.RECOVERING, (C.STALE_FIGURES, C.FAIL_LOAD)),",
        new="(S.LOADING, E.EXITED): Transition(S.RECOVERING, (C.STALE_FIGURES,)),",
        mistake="a model whose load kills its runner is loaded without end",
    ),
    Mutant(
        name="draining-does-not-count",
        module=LIFECYCLE,
        old="COUNTED: Final = frozenset({S.SPAWNING, S.LOADING, S.READY, S.DRAINING})",
        new="COUNTED: Final = frozenset({S.SPAWNING, S.LOADING, S.READY})",
        mistake="a runner that still serves somebody does not count towards the model limit (I14)",
    ),
)
