"""The control group works where nothing is in its way, and fails where the Go scheduler is known to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import trio

from simulations.control import GO, GO_OLD
from simulations.control.channel import Channel, Receive, Send, select
from simulations.control.context import Context, ContextCanceledError
from simulations.control.mutex import Mutex
from simulations.control.runtime import Panic, Runtime
from simulations.scenarios import Fault, Request, Run, Scenario, What, play
from simulations.world import determinism
from simulations.world.behaviour import Behaviour
from simulations.world.clients import Outcome
from simulations.world.system import System
from trio_ollama.scheduler import Policy

BOTH = pytest.mark.parametrize("system", [GO, GO_OLD], ids=lambda system: str(system.name))
LARGE = {"a": 14.0, "b": 14.0}
"""Of 24 GiB: one of them at a time."""


def runs(scenario: Scenario, system: System, schedules: Iterable[int] = range(20)) -> list[Run]:
    return [play(scenario, schedule=number, system=system) for number in schedules]


def broken(played: list[Run], text: str) -> int:
    """In how many runs a rule with that text was broken."""
    return sum(any(text in rule for rule in run.broken) for run in played)


# -- primitives -----------------------------------------------------------------------------------------------------


def in_order(main: Callable[[Runtime], object], schedules: int = 10) -> None:
    """`main` in the place of a server, in several interleavings."""

    async def whole() -> None:
        runtime = Runtime(lambda text: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run)
            await runtime.up.wait()
            await main(runtime)  # type: ignore[misc]
            runtime.power_off()

    for number in range(schedules):
        determinism.run(whole, seed=number)


def test_a_channel_without_a_buffer_hands_over_only_to_somebody() -> None:
    async def main(runtime: Runtime) -> None:
        channel: Channel[int] = Channel()
        assert not channel.offer(1)
        sent: list[int] = []

        async def send(number: int) -> None:
            await channel.send(number)
            sent.append(number)

        runtime.go(send, 1, name="sender")
        await trio.testing.wait_all_tasks_blocked()
        assert not sent
        assert await channel.receive() == 1
        await trio.testing.wait_all_tasks_blocked()
        assert sent == [1]

    in_order(main)


def test_a_full_channel_blocks_and_keeps_the_order() -> None:
    async def main(runtime: Runtime) -> None:
        channel: Channel[int] = Channel(2)
        assert channel.offer(1)
        assert channel.offer(2)
        assert not channel.offer(3)
        runtime.go(channel.send, 3, name="sender")
        await trio.testing.wait_all_tasks_blocked()
        assert [await channel.receive() for _ in range(3)] == [1, 2, 3]

    in_order(main)


def test_a_select_takes_one_case_and_leaves_the_others() -> None:
    async def main(runtime: Runtime) -> None:
        one, other, context = Channel[int](1), Channel[int](1), Context()
        chosen: list[object] = []

        async def choose() -> None:
            chosen.append((await select(Receive(one), Receive(other), Receive(context.done)))[1])

        runtime.go(choose, name="chooser")
        await trio.testing.wait_all_tasks_blocked()
        assert one.offer(1)
        assert other.offer(2)
        await trio.testing.wait_all_tasks_blocked()
        assert chosen == [1]
        assert len(other) == 1
        context.cancel()
        case, _, still_open = await select(Send(one, 3), Receive(Context().done))
        assert isinstance(case, Send)
        assert still_open
        assert len(one) == 1

    in_order(main)


def test_what_select_chooses_depends_on_the_schedule_alone() -> None:
    async def choose() -> int:
        found: list[int] = []
        runtime = Runtime(lambda text: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.run)
            await runtime.up.wait()
            one, other = Channel[int](1), Channel[int](1)
            assert one.offer(1)
            assert other.offer(2)
            found.append((await select(Receive(one), Receive(other)))[1])
            runtime.power_off()
        return found[0]

    chosen = [determinism.run(choose, seed=number) for number in range(20)]
    assert chosen == [determinism.run(choose, seed=number) for number in range(20)]
    assert set(chosen) == {1, 2}


def test_a_context_ends_what_looks_at_it() -> None:
    async def main(runtime: Runtime) -> None:
        context = Context()

        async def end() -> None:
            context.cancel()

        runtime.after(3, end, name="end")
        with pytest.raises(ContextCanceledError), context.governing():
            await trio.sleep_forever()
        assert trio.current_time() >= 3
        with pytest.raises(ContextCanceledError), context.governing():
            await trio.lowlevel.checkpoint()

    in_order(main)


def test_a_stopped_timer_never_begins_and_a_reset_one_begins_later() -> None:
    async def main(runtime: Runtime) -> None:
        fired: list[float] = []

        async def fire() -> None:
            fired.append(trio.current_time())

        stopped, moved = runtime.after(1, fire, name="stopped"), runtime.after(2, fire, name="moved")
        assert stopped.stop()
        assert not stopped.stop()
        moved.reset(5)
        began = trio.current_time()
        await trio.sleep(10)
        assert [when - began for when in fired] == [5]
        assert not moved.stop()

    in_order(main)


def test_goroutines_are_not_cancelled_but_vanish_together() -> None:
    async def main(runtime: Runtime) -> None:
        lock = Mutex()
        await lock.lock()
        runtime.go(lock.lock, name="waits for a lock")
        runtime.go(Channel[int]().receive, name="waits for a value")
        with trio.move_on_after(1):
            await trio.sleep_forever()
        assert runtime.goroutines() == ["waits for a lock", "waits for a value"]
        runtime.vanish()
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.goroutines() == []

    in_order(main)


@pytest.mark.parametrize("recovers", [True, False])
def test_a_panic_ends_the_server_unless_it_is_a_requests(recovers: bool) -> None:
    async def main(runtime: Runtime) -> None:
        async def fail() -> None:
            raise Panic("nil pointer")

        runtime.go(fail, name="fails", recovers=recovers)
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.panics == ["panic: nil pointer"]
        assert runtime.gone is not recovers

    in_order(main)


# -- nothing in its way ---------------------------------------------------------------------------------------------

BENIGN = {
    "one request": (Scenario(requests=(Request(),)), 1),
    "two models beside each other": (Scenario(requests=(Request(), Request(model="b"), Request(at=5))), 2),
    "an eviction": (Scenario(models=LARGE, requests=(Request(), Request(model="b", at=5))), 2),
    "a herd": (Scenario(requests=tuple(Request() for _ in range(20))), 1),
    "an expiry": (Scenario(requests=(Request(keep_alive=3), Request(at=20, keep_alive=3))), 2),
    "a reload": (Scenario(requests=(Request(num_ctx=4096), Request(at=5, num_ctx=8192))), 2),
    "two GPUs": (Scenario(gpus=(24, 24), models=LARGE, requests=(Request(), Request(model="b", at=5))), 2),
    "no GPU": (Scenario(gpus=(), requests=(Request(), Request(model="b", at=5))), 2),
    "texts to embed": (Scenario(requests=(Request(slot=False, tokens=0, inputs=3),)), 1),
    "a client that leaves": (Scenario(requests=(Request(tokens=90, leaves=2.5), Request(at=3))), 1),
    "a load that its client leaves": (Scenario(requests=(Request(leaves=1.5), Request(at=9))), 2),
}


@BOTH
@pytest.mark.parametrize("name", BENIGN)
def test_it_does_what_it_is_for(name: str, system: System) -> None:
    scenario, launches = BENIGN[name]
    for run in runs(scenario, system):
        assert run.broken == []
        assert {len(run.processes)} == {launches}
        wanted = [Outcome.ANSWERED if request.leaves is None else Outcome.CANCELLED for request in scenario.requests]
        assert [client.outcome for client in run.clients] == wanted


@BOTH
def test_a_schedule_is_one_run(system: System) -> None:
    """I27, and others are others."""
    scenario = Scenario(
        models=LARGE, requests=tuple(Request(model="ab"[number % 2], at=2 + number % 3) for number in range(8))
    )
    digests = [run.digest for run in runs(scenario, system)]
    assert digests == [run.digest for run in runs(scenario, system)]
    assert len(set(digests)) > 1


@BOTH
def test_it_can_be_played_unwatched(system: System) -> None:
    run = play(Scenario(requests=(Request(),)), system=system, watched=False)
    assert run.broken == []
    assert run.clients[0].outcome is Outcome.ANSWERED


# -- known races ----------------------------------------------------------------------------------------------------


def test_whoever_left_while_queued_leaves_a_handler_behind() -> None:
    """R01."""
    scenario = Scenario(requests=(Request(), Request(model="b", at=1, leaves=1.5)))
    assert broken(runs(scenario, GO), "handler of request 2") == 20


@BOTH
def test_a_victim_goes_and_a_process_starts_for_whoever_left(system: System) -> None:
    """R02."""
    scenario = Scenario(models=LARGE, requests=(Request(tokens=300), Request(model="b", at=3, leaves=4)))
    for run in runs(scenario, system, range(5)):
        assert run.launches("b") == 1
        assert run.clients[1].outcome is Outcome.CANCELLED


def test_a_victim_is_brought_back_by_the_fast_path() -> None:
    """R38: whoever waits for its memory, and all behind, wait as long as somebody wants it."""
    users = tuple(Request(at=3.5 + number, tokens=120, keep_alive=-1) for number in range(4))
    scenario = Scenario(
        models=LARGE, requests=(Request(tokens=200), Request(model="b", at=3), Request(model="c", at=4), *users)
    )
    played = runs(scenario, GO, range(5))
    assert broken(played, "I21: client 2 (b) waits for ever") == 5
    assert broken(played, "I21: client 3 (c) waits for ever") == 5
    for run in played:
        assert all(client.outcome is Outcome.ANSWERED for client in run.clients[3:])  # and all looks well


def test_the_older_one_has_no_such_path() -> None:
    users = tuple(Request(at=3.5 + number, tokens=120, keep_alive=-1) for number in range(4))
    scenario = Scenario(models=LARGE, requests=(Request(tokens=200), Request(model="b", at=3), *users))
    assert broken(runs(scenario, GO_OLD, range(5)), "I21") == 0


@BOTH
def test_a_reader_that_leaves_takes_the_slot_along(system: System) -> None:
    """R06."""
    scenario = Scenario(requests=(Request(tokens=100, pause=0.5, leaves=5), Request(at=6)))
    played = runs(scenario, system)
    assert broken(played, "completion for request 1") == broken(played, "I21: client 2 (a) waits for ever") == 20


@BOTH
def test_a_runner_is_handed_out_that_has_just_been_stopped(system: System) -> None:
    """R12, at the end of its keep-alive."""
    scenario = Scenario(requests=(Request(tokens=0, keep_alive=5), Request(at=7), Request(at=7)))
    assert 0 < broken(runs(scenario, system, range(40)), "got the dead a") < 40


def test_a_second_expiry_takes_the_successors_entry() -> None:
    """R14: nobody can reach that process any more."""
    scenario = Scenario(
        launches={"a": (Behaviour(refuses_to_load="no such tensor"),)},
        requests=(Request(num_ctx=4096), Request(at=1, num_ctx=8192), Request(at=30, num_ctx=8192)),
    )
    assert broken(runs(scenario, GO_OLD, range(40)), "I05: 2 processes of a") > 0
    assert broken(runs(scenario, GO), "I05") == 0


def test_two_locks_are_taken_in_both_orders() -> None:
    """R16."""
    scenario = Scenario(requests=(Request(tokens=0, keep_alive=5), Request(model="b", at=7), Request(model="c", at=30)))
    assert broken(runs(scenario, GO_OLD, range(40)), "I21: client 3 (c) waits for ever") > 0
    assert broken(runs(scenario, GO), "I21") == 0


def test_a_list_without_runners_has_no_first() -> None:
    """R41: the server dies of it."""
    scenario = Scenario(
        models={"b": 23}, requests=(Request(tokens=0, keep_alive=5), Request(model="b", at=7), Request(at=30))
    )
    played = runs(scenario, GO_OLD, range(60))
    assert 0 < broken(played, "panic: index out of range") < 60
    assert all(run.clients[2].outcome is Outcome.FAILED for run in played if broken([run], "panic"))
    assert broken(runs(scenario, GO), "panic") == 0


def test_whoever_waits_for_memory_in_the_older_one_goes_on_for_ever() -> None:
    """R33: no memory comes back of a process that had none."""
    scenario = Scenario(launches={"a": (Behaviour(dies_loading=0.0),)}, requests=(Request(), Request(at=20)))
    assert broken(runs(scenario, GO_OLD), "goroutine: recovery of a (pid 1000)") == 20
    assert broken(runs(scenario, GO), "recovery") == 0


def test_the_end_takes_away_the_load_that_its_loader_goes_on_with() -> None:
    """R67: the loader finds out while the end is still busy with another process."""
    scenario = Scenario(
        launches={"b": (Behaviour(kill_time=1),)},
        requests=(Request(model="b"), Request(at=5)),
        faults=(Fault(at=6.1, what=What.END), Fault(at=30, what=What.LAG)),
    )
    assert broken(runs(scenario, GO), "panic: nil pointer") == 20


def test_a_process_starts_after_the_sweep() -> None:
    """R68: it outlives the server."""
    scenario = Scenario(
        requests=(Request(), Request(model="b", at=2)),
        faults=(Fault(at=2, what=What.END, stepwise=True), Fault(at=30, what=What.LAG)),
    )
    assert 0 < broken(runs(scenario, GO, range(60)), "outlives the server") < 60


@BOTH
def test_a_channel_that_is_full_blocks_its_only_receiver(system: System) -> None:
    """R23: with a queue bound of 0."""
    scenario = Scenario(policy=Policy(queue_bound=0), requests=(Request(keep_alive=0),))
    assert broken(runs(scenario, system), "runner a (pid 1000) used by 0") == 20
