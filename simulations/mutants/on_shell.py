"""Faults in the shell around the fleet: who is woken, who is told, what is cleaned up when somebody is cancelled."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

__all__ = ["MUTANTS"]

SCHEDULER: Final = "trio_ollama.scheduler.scheduler"
FACTS: Final = "trio_ollama.scheduler.facts"

MUTANTS: Final = (
    Mutant(
        name="lost-wake-up",
        module=SCHEDULER,
        old="case ef.Measure():\n                self._wanted.set()",
        new="case ef.Measure():\n                pass",
        mistake="nobody wakes the task that measures, so whoever waits for fresh figures sleeps for ever",
    ),
    Mutant(
        name="silent-change",
        module=SCHEDULER,
        old="            self._changed.set()\n",
        new="",
        mistake="a change is not announced: whoever waits for the end of the runners sleeps until the bound",
    ),
    Mutant(
        name="forgetful-acquire",
        module=SCHEDULER,
        old="except BaseException:\n            self._leave(ticket)",
        new="except Exception:\n            self._leave(ticket)",
        mistake="cleans up after errors only, and Cancelled is none",
    ),
    Mutant(
        name="lease-lost-between-grant-and-return",
        module=SCHEDULER,
        old="self.step(lambda now: self.fleet.leave(ticket.seq, now))",
        new="ticket.gen is None and self.step(lambda now: self.fleet.leave(ticket.seq, now))",
        mistake="cancelled after the grant, but before acquire returns, a request keeps its lease (R05)",
    ),
    Mutant(
        name="checkpoint-after-grant",
        module=SCHEDULER,
        old="        # No checkpoint from here to the caller",
        new="        await trio.lowlevel.checkpoint()\n        # No checkpoint from here to the caller",
        mistake="a place to be cancelled at where the lease has no owner (R05)",
    ),
    Mutant(
        name="ghost-announced",
        module=SCHEDULER,
        old="            self._unannounced.remove(ticket)",
        new="            pass",
        mistake="a client that left before its request was announced is announced all the same",
    ),
    Mutant(
        name="arrival-without-wake-up",
        module=SCHEDULER,
        old="self._unannounced.append(ticket)\n            self._wanted.set()",
        new="self._unannounced.append(ticket)",
        mistake="a request that needs fresh figures does not ask for them",
    ),
    Mutant(
        name="figures-without-announcement",
        module=SCHEDULER,
        old="        self._announce_all()\n        return devices",
        new="        return devices",
        mistake="fresh figures are there, but those who waited for them are not let in",
    ),
    Mutant(
        name="last-come-first-announced",
        module=SCHEDULER,
        old="self._unannounced.popleft()",
        new="self._unannounced.pop()",
        mistake="who waits for figures is let in in the wrong order (I23)",
    ),
    Mutant(
        name="close-forgets-the-unannounced",
        module=SCHEDULER,
        old="self.step(self.fleet.close)\n            self._announce_all()",
        new="self.step(self.fleet.close)",
        mistake="requests that wait for figures are not told of the shutdown",
    ),
    Mutant(
        name="end-without-close",
        module=SCHEDULER,
        old="                self.close()\n\n    # -- requests",
        new="                pass\n\n    # -- requests",
        mistake="the server ends, and nobody tells those who wait (R68)",
    ),
    Mutant(
        name="wish-wiped-out",
        module=SCHEDULER,
        old="            self._wanted = trio.Event()\n            await self.measure()",
        new="            await self.measure()\n            self._wanted = trio.Event()",
        mistake="a wish for figures that comes during a measurement is wiped out at its end",
    ),
    Mutant(
        name="supervisors-kept",
        module=SCHEDULER,
        old="if supervisor.gen not in self.fleet.runners:",
        new="if supervisor.gen in self.fleet.runners:",
        mistake="supervisors of runners that are gone are kept, and those of stuck ones dropped",
    ),
    Mutant(
        name="tickets-kept",
        module=SCHEDULER,
        old="        self._tickets.pop(ticket.seq, None)\n        holds = self._holds_slot(ticket)",
        new="        holds = self._holds_slot(ticket)",
        mistake="every request that was served leaves something behind",
    ),
    Mutant(
        name="slot-back-before-confirmation",
        module=SCHEDULER,
        old="settled=not pending, served=served",
        new="settled=True, served=served",
        mistake="a cancelled call's slot is given to the next before the child has let go of it (R08)",
    ),
    Mutant(
        name="slot-asked-for-too-late",
        module=SCHEDULER,
        old="        holds = self._holds_slot(ticket)\n        self.step(lambda now: self.fleet.release(ticket"
        ".seq, now, settled=not pending, served=served))",
        new="        self.step(lambda now: self.fleet.release(ticket.seq, now, settled=not pending, served=served))\n"
        "        holds = self._holds_slot(ticket)",
        mistake="whether a slot has to be confirmed is asked after the lease is gone, and so it never is",
    ),
    Mutant(
        name="batch-slot-back-before-confirmation",
        module=SCHEDULER,
        old="self.fleet.return_slot(ticket.seq, now, settled=not pending)",
        new="self.fleet.return_slot(ticket.seq, now, settled=True)",
        mistake="the same for one input of a batch (R08, R10)",
    ),
    Mutant(
        name="loss-without-word",
        module=SCHEDULER,
        old="self._tickets[seq].fail(lost, taken=because is not None)",
        new="self._tickets[seq].error = lost",
        mistake="the end of a runner wakes nobody of those who wait on it",
    ),
    Mutant(
        name="refusal-without-word",
        module=SCHEDULER,
        old="ticket.fail(refusal(because, facts, ticket.demand.model.name))",
        new="ticket.error = refusal(because, facts, ticket.demand.model.name)",
        mistake="a refusal wakes nobody",
    ),
    Mutant(
        name="lease-without-its-slot",
        module=SCHEDULER,
        old="                if not ticket.demand.slot:\n                    ticket.settled.set()",
        new="                ticket.settled.set()",
        mistake="a request goes on with its lease before it has its slot",
    ),
    Mutant(
        name="only-the-ready-are-stopped",
        module=SCHEDULER,
        old="            if runner.state in ALIVE:\n                self.kill(gen, Because.SHUTDOWN",
        new="            if runner.state is State.READY:\n                self.kill(gen, Because.SHUTDOWN",
        mistake="the end of the server forgets runners that load",
    ),
    Mutant(
        name="hung-clients-wait-on",
        module=SCHEDULER,
        old="taken=because is not None)",
        new="taken=False)",
        mistake="clients of a runner that was taken away wait for its connections to break (R81)",
    ),
    Mutant(
        name="look-may-raise",
        module=FACTS,
        old='except Exception:\n            log.exception("a query of the hardware',
        new='except ValueError:\n            log.exception("a query of the hardware',
        mistake="a fault in a look at the hardware ends the scheduler",
    ),
    Mutant(
        name="no-answer-means-no-gpu",
        module=FACTS,
        old="            if gpus is not None:\n                known",
        new="            gpus = gpus or ()\n            if gpus is not None:\n                known",
        mistake="a failed look at the GPUs is taken for a machine without any (I19, R65)",
    ),
    Mutant(
        name="no-figure-means-all-free",
        module=FACTS,
        old="        return gpu\n    return replace(gpu, free=before.free)",
        new="        return gpu\n    return replace(gpu, free=gpu.total)",
        mistake="a GPU that does not say what is free counts as empty (I19)",
    ),
    Mutant(
        name="look-without-deadline",
        module=FACTS,
        old="with trio.move_on_after(self._deadline):\n                memory",
        new="with trio.CancelScope():\n                memory",
        mistake="a slow look at the hardware holds everybody up (R65)",
    ),
    Mutant(
        name="late-answer-wins",
        module=FACTS,
        old="if asked > self._answered:",
        new="if asked:",
        mistake="the answer of an older, slower look replaces that of a newer one",
    ),
)
