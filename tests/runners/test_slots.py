"""When a call that was given up is settled."""

from __future__ import annotations

from trio_ollama.runners.llama_server.log import SlotEvent
from trio_ollama.runners.llama_server.slots import SlotLedger


class Call:
    def __init__(self) -> None:
        self.settled = False

    def settle(self) -> None:
        self.settled = True


def busy(*slots: int) -> list[SlotEvent]:
    return [SlotEvent(slot, busy=True) for slot in slots]


def free(*slots: int) -> list[SlotEvent]:
    return [SlotEvent(slot, busy=False) for slot in slots]


def opened(ledger: SlotLedger, count: int) -> list[Call]:
    calls = [Call() for _ in range(count)]
    for call in calls:
        ledger.opened(call)
    return calls


def test_a_call_that_ended_is_settled_at_once() -> None:
    ledger = SlotLedger()
    (call,) = opened(ledger, 1)
    ledger.read(busy(0))
    ledger.finished(call)
    assert call.settled
    assert ledger.unsettled == 0


def test_an_aborted_call_waits_for_its_slot() -> None:
    ledger = SlotLedger()
    (call,) = opened(ledger, 1)
    ledger.read(busy(0))
    ledger.hung_up(call)
    assert not call.settled
    ledger.read(free(0))
    assert call.settled


def test_the_release_may_be_seen_before_the_hang_up() -> None:
    ledger = SlotLedger()
    (call,) = opened(ledger, 1)
    ledger.read(busy(0) + free(0))
    assert not call.settled
    ledger.hung_up(call)
    assert call.settled


def test_a_call_that_never_got_a_slot_is_settled_by_the_hang_up() -> None:
    ledger = SlotLedger()
    working, queued = opened(ledger, 2)
    ledger.read(busy(0))
    ledger.hung_up(queued)
    assert queued.settled
    assert not working.settled


def test_a_slot_of_another_call_does_not_hold_it_up() -> None:
    ledger = SlotLedger()
    aborted, other = opened(ledger, 2)
    ledger.read(busy(0, 1))
    ledger.hung_up(aborted)
    assert not aborted.settled
    ledger.read(free(1))
    assert aborted.settled
    assert not other.settled


def test_several_aborts_settle_as_slots_come_free() -> None:
    ledger = SlotLedger()
    calls = opened(ledger, 3)
    ledger.read(busy(0, 1, 2))
    for call in calls:
        ledger.hung_up(call)
    assert [call.settled for call in calls] == [False, False, False]
    ledger.read(free(2))
    assert sum(call.settled for call in calls) == 1
    ledger.read(free(0, 1))
    assert all(call.settled for call in calls)


def test_a_child_without_slot_lines_settles_by_the_hang_up() -> None:
    ledger = SlotLedger()
    (call,) = opened(ledger, 1)
    ledger.hung_up(call)
    assert call.settled


def test_the_end_of_the_child_settles_all() -> None:
    ledger = SlotLedger()
    calls = opened(ledger, 2)
    ledger.read(busy(0, 1))
    ledger.hung_up(calls[0])
    ledger.child_gone()
    assert all(call.settled for call in calls)
    assert ledger.unsettled == 0


def test_a_call_without_need_of_a_slot_is_settled_by_the_hang_up() -> None:
    ledger = SlotLedger()
    ledger.read(busy(0))
    call = Call()
    ledger.hung_up(call)
    assert call.settled
