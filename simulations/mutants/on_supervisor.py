"""Faults in the task that owns a process: its start, its deadlines, its end, and the return of its memory."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

__all__ = ["MUTANTS"]

SUPERVISOR: Final = "trio_ollama.scheduler.supervisor"
RECOVERY: Final = "trio_ollama.scheduler.recovery"

MUTANTS: Final = (
    Mutant(
        name="spawn-at-the-end",
        module=SUPERVISOR,
        old="        await trio.lowlevel.checkpoint_if_cancelled()  # the end",
        new="        # the end",
        mistake="a process is started although the server ends (R68)",
    ),
    Mutant(
        name="spawn-for-nobody",
        module=SUPERVISOR,
        old="        if self.record.state is State.STOPPING:\n",
        new="        if False:\n",
        mistake="a load that was given up before its process was there is started all the same",
    ),
    Mutant(
        name="no-recovery",
        module=SUPERVISOR,
        old="        if self.record.state is State.RECOVERING:\n            self._recovery = await",
        new="        if False:\n            self._recovery = await",
        mistake="nobody waits for the driver to show the memory of a process that has ended (R31)",
    ),
    Mutant(
        name="fault-leaves-the-process",
        module=SUPERVISOR,
        old="        self.process.kill()\n        self._scheduler.kill(self.gen, Because.FAULT",
        new="        self._scheduler.kill(self.gen, Because.FAULT",
        mistake="an unexpected fault ends the supervisor, and its process lives on",
    ),
    Mutant(
        name="unshielded-funeral",
        module=SUPERVISOR,
        old="with trio.move_on_after(self._limits.kill_wait, shield=True):",
        new="with trio.move_on_after(self._limits.kill_wait):",
        mistake="the reaping after a fault is cut short by the end of the server",
    ),
    Mutant(
        name="no-sigkill",
        module=SUPERVISOR,
        old="        process.kill()\n        await trio.sleep",
        new="        await trio.sleep",
        mistake="a process that ignores SIGTERM is not killed",
    ),
    Mutant(
        name="no-sigterm",
        module=SUPERVISOR,
        old="            process.terminate()\n",
        new="",
        mistake="a process is not asked to end, only killed after the grace",
    ),
    Mutant(
        name="grace-not-cut-short",
        module=SUPERVISOR,
        old="                await self._kill.wait()",
        new="                await trio.sleep_forever()",
        mistake="a forced stop during the grace of an ordinary one waits until that is over",
    ),
    Mutant(
        name="force-with-grace",
        module=SUPERVISOR,
        old="            self._kill.set()",
        new="            pass",
        mistake="a runner that hangs is asked politely",
    ),
    Mutant(
        name="stop-without-wake-up",
        module=SUPERVISOR,
        old="        self._stop.set()\n",
        new="        if kill:\n            self._stop.set()\n",
        mistake="an ordinary stop wakes nobody",
    ),
    Mutant(
        name="stale-timer",
        module=SUPERVISOR,
        old="        self._rearmed.set()",
        new="        pass",
        mistake="the timer goes on with the deadline that it knew at the start",
    ),
    Mutant(
        name="expiry-before-arrivals",
        module=SUPERVISOR,
        old="            await trio.lowlevel.checkpoint()\n            if trio.current_time()",
        new="            if trio.current_time()",
        mistake="a keep-alive that ends in the instant of a request may win (R21)",
    ),
    Mutant(
        name="drain-watchdog-hears-no-token",
        module=SUPERVISOR,
        old="        self._progress_at = trio.current_time()",
        new="        pass",
        mistake="a long answer in a drain is killed for a hang, though tokens keep coming (R81)",
    ),
    Mutant(
        name="drain-watchdog-looks-once",
        module=SUPERVISOR,
        old="            if trio.current_time() < self._due():\n",
        new="            if self._awaited_since == math.inf and trio.current_time() < self._due():\n",
        mistake="the same, as the deadline is not worked out again when it is reached (R81)",
    ),
    Mutant(
        name="claims-are-not-watched",
        module=SUPERVISOR,
        old="record.state is State.DRAINING or record.claimed_by is not None",
        new="record.state is State.DRAINING",
        mistake="who waits for the requests of a hung runner waits for ever (R81, I21)",
    ),
    Mutant(
        name="drains-are-not-watched",
        module=SUPERVISOR,
        old="record.state is State.DRAINING or record.claimed_by is not None",
        new="record.claimed_by is not None",
        mistake="a drain of a hung runner lasts for ever (R81)",
    ),
    Mutant(
        name="slot-never-back",
        module=SUPERVISOR,
        old="            self._step(self._scheduler.fleet.slot_settled, self.gen)",
        new="            pass",
        mistake="the child lets go of a cancelled call, and the slot stays taken (R08)",
    ),
    Mutant(
        name="confirmation-not-enforced",
        module=SUPERVISOR,
        old="        if scope.cancelled_caught:\n            self._scheduler.kill(\n                self.gen, Because"
        '.HUNG, f"the model did not let go of a cancelled request within {limit:g} s"\n            )',
        new="        if scope.cancelled_caught:\n            pass",
        mistake="a child that never lets go of a cancelled call keeps its slot for ever (R08)",
    ),
    Mutant(
        name="confirmation-without-bound",
        module=SUPERVISOR,
        old="        with trio.move_on_after(limit) as scope:\n            await self._settled",
        new="        with trio.CancelScope() as scope:\n            await self._settled",
        mistake="the same, by waiting without a bound",
    ),
    Mutant(
        name="end-unnoticed",
        module=SUPERVISOR,
        old='            nursery.cancel_scope.cancel("the process has ended")',
        new="            pass",
        mistake="the tasks that watch a process outlive it",
    ),
    Mutant(
        name="load-failure-swallowed",
        module=SUPERVISOR,
        old="            self._scheduler.step(lambda now: fleet.load_failed(self.gen, text, out_of_memory=memory, now="
        "now))\n",
        new="",
        mistake="a child that says it cannot load is left alone, and so are those who wait for it",
    ),
    Mutant(
        name="memory-forgotten-in-a-failure",
        module=SUPERVISOR,
        old="out_of_memory=memory, now=now",
        new="out_of_memory=False, now=now",
        mistake="a load that ran out of memory is not tried again with everything else gone (R48)",
    ),
    Mutant(
        name="no-look-after-a-load",
        module=SUPERVISOR,
        old="it (R31).\n        await self._look(process)\n",
        new="it (R31).\n",
        mistake="a stop compares with figures from before the load, which show more than there is (R31)",
        survives="a stop looks again before it begins, and compares with what was free before the start as well",
    ),
    Mutant(
        name="falling-figures-count",
        module=RECOVERY,
        old="4 * max(0, now - stopped) > 3 * held",
        new="4 * abs(now - stopped) > 3 * held",
        mistake="memory that somebody else takes meanwhile counts as memory that came back (R32)",
    ),
    Mutant(
        name="recovery-without-bound",
        module=RECOVERY,
        old="    with trio.move_on_after(limit):\n        while True:",
        new="    with trio.CancelScope():\n        while True:",
        mistake="memory that never comes back is waited for without a bound",
    ),
    Mutant(
        name="recovery-of-the-last-device",
        module=RECOVERY,
        old="missing = missing or not back",
        new="missing = not back",
        mistake="only the last of several devices has to have its memory back",
    ),
    Mutant(
        name="recovery-spins",
        module=RECOVERY,
        old="            await trio.sleep(poll)",
        new="            await trio.lowlevel.checkpoint()",
        mistake="a busy loop in place of a pause",
    ),
)
