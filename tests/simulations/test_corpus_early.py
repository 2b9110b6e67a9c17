"""Known races R01-R30: the scheduler does what each entry requires, in every interleaving that is played."""

from __future__ import annotations

from itertools import chain

import pytest
import trio

from simulations.corpus import (
    Case,
    cancelled_served,
    cancelled_waiting,
    keep_alive,
    lifetime,
    locks,
    stopping,
)
from simulations.scenarios import play
from simulations.world.world import World
from trio_ollama.scheduler.core.events import LeaseGranted

MODULES = (cancelled_waiting, cancelled_served, lifetime, locks, keep_alive, stopping)
EVERY = list(chain.from_iterable(module.CASES for module in MODULES))


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.entry)
def test_required(case: Case) -> None:
    for schedule in case.schedules:
        problems = case.judge(play(case.scenario, schedule=schedule))
        assert not problems, f"{case.entry}, schedule {schedule}: {problems}"


def test_every_entry_has_a_case_or_is_tested_elsewhere() -> None:
    known = {case.entry.partition("-")[0] for case in EVERY}.union(*(module.NOT_HERE for module in MODULES))
    assert known == {f"R{number:02}" for number in range(1, 31)}


def test_R05_strikes_before_between_and_after_the_handing_over() -> None:
    """Else the case would not be the one that it says it is."""
    before = between = after = 0
    for schedule in cancelled_waiting.R05.schedules:
        run = play(cancelled_waiting.R05.scenario, schedule=schedule)
        granted = sum(isinstance(event, LeaseGranted) for event in run.events)
        resumed = sum(client.granted_at is not None for client in run.clients)
        before += len(run.clients) - granted
        between += granted - resumed
        after += resumed - 1  # the last one stays
    assert before
    assert between
    assert after


class _Reader(trio.abc.Instrument):
    """Asks what is loaded after every step of any task, as a client may at any time."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.seen = 0
        self.wrong: list[str] = []

    def look(self, world: World) -> None:
        self.world = world

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.world is None:
            return
        ended = {process.pid: process.ended_at for process in self.world.factory.spawned}
        for view in self.world.scheduler.snapshot():
            self.seen += 1
            if view.pid is None or (ended[view.pid] is not None and ended[view.pid] != trio.current_time()):
                self.wrong.append(f"process {view.pid} is listed, and is not there")
            if (view.expires_in < 0) is not view.draining:
                self.wrong.append(f"process {view.pid} ({view.state}) is said to go in {view.expires_in}")


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.entry)
def test_R20_R28_what_is_loaded_and_until_when_can_be_asked_at_any_step(case: Case) -> None:
    reader = _Reader()
    play(case.scenario, schedule=1, interfere=reader.look, instruments=[reader], watched=False)
    assert not reader.wrong
    assert reader.seen
