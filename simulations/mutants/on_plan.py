"""Faults in the planner: who may use what is there, who must wait, and which load starts."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

__all__ = ["MUTANTS"]

PLAN: Final = "trio_ollama.scheduler.core.plan"
ROOM: Final = "trio_ollama.scheduler.core.room"
LEDGER: Final = "trio_ollama.scheduler.core.ledger"
SHORTCUTS: Final = "trio_ollama.scheduler.core.shortcuts"
EVICTION: Final = "trio_ollama.scheduler.core.eviction"

MUTANTS: Final = (
    Mutant(
        name="loads-are-never-given-up",
        module=PLAN,
        old="        if finish or self._first_interested(runner) is not None:",
        new="        if True:",
        mistake="a load that nobody waits for any more goes on (R03)",
    ),
    Mutant(
        name="loads-are-given-up-by-their-first",
        module=PLAN,
        old="                return waiter\n        return None\n\n    def _keep_or_abort",
        new="                return waiter\n            return None\n        return None\n\n    def _keep_or_abort",
        mistake="a load is judged by the first waiter of its model alone (R04)",
    ),
    Mutant(
        name="first-of-load-passed-over",
        module=PLAN,
        old="                if heir is not None:",
        new="                if False:",
        mistake="a load is done, and somebody else may have its runner stopped before anybody was served (R44)",
    ),
    Mutant(
        name="claims-ignored",
        module=PLAN,
        old="        claimed = runner.gen in ledger.claimed\n",
        new="        claimed = False\n",
        mistake="later requests keep a runner busy that an earlier one waits for (I23)",
    ),
    Mutant(
        name="stop-ignored-by-newcomers",
        module=PLAN,
        old="        if not runner.open_to(q.seq) or not self._satisfies(runner.config, q):\n            return False",
        new="        if not self._satisfies(runner.config, q):\n            return False",
        mistake="a request gets a runner that was stopped before it came (R26)",
    ),
    Mutant(
        name="options-ignored",
        module=PLAN,
        old="        if not runner.open_to(q.seq) or not self._satisfies(runner.config, q):\n            return False",
        new="        if not runner.open_to(q.seq):\n            return False",
        mistake="a request gets a runner with other options than it asked for (R58)",
    ),
    Mutant(
        name="budget-off-by-one",
        module=LEDGER,
        old="if self._fleet.overtakers.of(head, id_) + now >= self._fleet.policy.overtakes:",
        new="if self._fleet.overtakers.of(head, id_) + now > self._fleet.policy.overtakes:",
        mistake="one more request overtakes than may (I23)",
    ),
    Mutant(
        name="slot-queue-without-bound",
        module=PLAN,
        old="        elif q.demand.slot and ledger.free_slots(runner) <= 0 and ledger.full(q):",
        new="        elif False:",
        mistake="the queue for slots has no bound (I13)",
        survives="newcomers to a ready runner are judged by the shortcut; whoever gets here has been let in",
    ),
    Mutant(
        name="queue-without-bound",
        module=LEDGER,
        old="return not q.admitted and self._fleet.waiting - self._settled > self._fleet.policy.queue_bound",
        new="return False",
        mistake="the queue has no bound (I13)",
    ),
    Mutant(
        name="bound-off-by-one",
        module=LEDGER,
        old="self._settled > self._fleet.policy.queue_bound",
        new="self._settled >= self._fleet.policy.queue_bound",
        mistake="one request less waits than may (I13)",
    ),
    Mutant(
        name="head-starts-are-bounded",
        module=ROOM,
        old="        if unlocked is None and ledger.full(q):",
        new="        if ledger.full(q):",
        mistake="a request that could have its load at once is refused for a full queue (R54)",
    ),
    Mutant(
        name="load-on-old-figures",
        module=ROOM,
        old="        if unlocked is not None and self._fleet.facts_fresh:",
        new="        if unlocked is not None:",
        mistake="a load starts on figures from before the last exit (R35)",
    ),
    Mutant(
        name="eviction-on-old-figures",
        module=ROOM,
        old="            ledger.spared |= claim\n",
        new="",
        mistake="runners are stopped for figures from before the last exit (R35)",
    ),
    Mutant(
        name="two-loads-on-a-device",
        module=ROOM,
        old="if ledger.locked.isdisjoint(placement.load_lock)), None)",
        new="if True), None)",
        mistake="a load starts where another one runs (I06)",
    ),
    Mutant(
        name="running-load-locks-nothing",
        module=PLAN,
        old="            self._ledger.locked |= runner.placement.load_lock\n",
        new="            pass\n",
        mistake="the same, as only loads of this pass are seen (I06)",
    ),
    Mutant(
        name="memory-given-twice-in-a-pass",
        module=LEDGER,
        old="        self.pools.draw(placement.reservation, now)\n",
        new="",
        mistake="two loads of one pass are given the same memory (I07)",
    ),
    Mutant(
        name="place-not-kept",
        module=LEDGER,
        old="        self.pools.draw(need, *(pools or self._all))\n",
        new="",
        mistake="later loads use up what an earlier request waits for (I21, R55)",
    ),
    Mutant(
        name="eviction-of-the-busy",
        module=LEDGER,
        old="            if self._idle(gen) and gen not in self.spared:",
        new="            if gen not in self.spared:",
        mistake="a runner is stopped for another model while requests are served by it (I04)",
    ),
    Mutant(
        name="load-beside-the-predecessor",
        module=ROOM,
        old="            if fitting and not exit_pending:  # 6",
        new="            if fitting:  # 6",
        mistake="a model is loaded while its previous process still ends (I05)",
    ),
    Mutant(
        name="two-loads-of-a-model",
        module=PLAN,
        old="        start = ledger.started.get(q.key)\n",
        new="        start = None\n",
        mistake="two requests of one pass start a load of the same model each (I05)",
    ),
    Mutant(
        name="stuck-is-waited-for",
        module=PLAN,
        old="        elif runner.stuck:\n",
        new="        elif False:\n",
        mistake="who wants a model whose process cannot be killed waits for ever (R71)",
    ),
    Mutant(
        name="retry-among-others",
        module=PLAN,
        old="        if retry is not None and retry.alone:  # 5",
        new="        if False:  # 5",
        mistake="the retry after a lack of memory starts beside those who take it (R48)",
    ),
    Mutant(
        name="loads-at-the-end",
        module=PLAN,
        old="            if self._closing:  # 0",
        new="            if False:  # 0",
        mistake="loads start although the server shuts down (R68)",
    ),
    Mutant(
        name="backed-off-model-tried",
        module=PLAN,
        old="            if error is not None:\n                return ledger.refuse(q, Because.CRASH_BACKOFF, error)",
        new="            if False:\n                return ledger.refuse(q, Because.CRASH_BACKOFF, error)",
        mistake="a model in a crash loop is loaded without end (R78)",
    ),
    Mutant(
        name="served-still-counted-as-waiting",
        module=LEDGER,
        old="        if slot or not q.demand.slot:\n            self._settled += 1\n",
        new="",
        mistake="who got a slot in this pass still counts towards the bound (I13)",
        survives="in a pass that grants anything hardly ever stands one who may still be refused",
    ),
    Mutant(
        name="more-victims-than-needed",
        module=EVICTION,
        old="            if all(amount <= 0 for amount in without.values()):\n                chosen.remove(runner)",
        new="            if False:\n                chosen.remove(runner)",
        mistake="runners are stopped that are in nobody's way (R42)",
    ),
    Mutant(
        name="busy-runner-taken-for-idle",
        module=EVICTION,
        old="self._busy = {gen for gen, runner in self._runners.items() if runner.leases}",
        new="self._busy = {gen for gen, runner in self._runners.items() if runner.held_slots}",
        mistake="a runner counts as idle whose requests hold no slot",
    ),
    Mutant(
        name="shortcut-through-a-claim",
        module=SHORTCUTS,
        old="runner.state is State.READY and runner.claimed_by is None and _serves(runner, q)",
        new="runner.state is State.READY and _serves(runner, q)",
        mistake="a newcomer gets a runner that an earlier request waits for (I23)",
    ),
    Mutant(
        name="shortcut-past-the-bound",
        module=SHORTCUTS,
        old="        if q.demand.slot and not slot and full:",
        new="        if False:",
        mistake="a newcomer queues for a slot however many do (I13)",
    ),
    Mutant(
        name="shortcut-into-a-closed-load",
        module=SHORTCUTS,
        old="return runner.open_to(q.seq) and difference(runner.config, q.wanted) is None",
        new="return difference(runner.config, q.wanted) is None",
        mistake="a newcomer waits for a load that was stopped before it came (R26)",
    ),
    Mutant(
        name="departures-of-no-interest",
        module=SHORTCUTS,
        old="    if runner is None or not runner.loading:\n        return True",
        new="    if runner is None or runner.loading:\n        return True",
        mistake="the last one leaves a load, which goes on for nobody (R03)",
    ),
)
