"""The life of a runner as a table: what is not in it is a fault, and nothing ever goes back (I16)."""

from __future__ import annotations

import pytest

from trio_ollama.scheduler.core.lifecycle import (
    ALIVE,
    COUNTED,
    LOADING,
    TRANSITIONS,
    Consequence,
    Event,
    IllegalTransitionError,
    State,
    advance,
)

PAIRS = [(state, event) for state in State for event in Event]
ORDER = list(State)


@pytest.mark.parametrize(("state", "event"), [pair for pair in PAIRS if pair not in TRANSITIONS])
def test_what_is_not_in_the_table_raises(state: State, event: Event) -> None:
    with pytest.raises(IllegalTransitionError, match=f"{state.value}.*{event.value}"):
        advance(state, event)


@pytest.mark.parametrize(("state", "event"), [pair for pair in PAIRS if pair in TRANSITIONS])
def test_I16_states_only_move_forward(state: State, event: Event) -> None:
    assert advance(state, event) is TRANSITIONS[state, event]
    after = advance(state, event).to
    assert ORDER.index(after) >= ORDER.index(state)
    if after is state:
        # An order that comes again, or for what is on its way out already.
        assert (state, event) in {
            (State.DRAINING, Event.DRAIN),
            (State.STOPPING, Event.KILL),
            (State.STOPPING, Event.SPAWNED),
        }


def test_nothing_leaves_gone_and_everything_can_reach_it() -> None:
    assert not any(state is State.GONE for state, _ in TRANSITIONS)
    reached = {State.GONE}
    for _ in State:
        reached |= {state for (state, _), after in TRANSITIONS.items() if after.to in reached}
    assert reached == set(State)


@pytest.mark.parametrize("state", [state for state in State if state is not State.GONE])
def test_I01_a_state_with_a_process_knows_its_exit(state: State) -> None:
    exit_of = TRANSITIONS.get((state, Event.EXITED))
    assert (exit_of is not None and exit_of.to is State.RECOVERING) is (state in ALIVE)


def test_I14_a_runner_counts_towards_the_limit_until_it_stops() -> None:
    assert ALIVE - {State.STOPPING} == COUNTED
    assert LOADING < COUNTED


def test_a_runner_is_only_ready_after_a_load_and_only_once() -> None:
    assert [pair for pair, after in TRANSITIONS.items() if after.to is State.READY] == [(State.LOADING, Event.LOADED)]


@pytest.mark.parametrize(("state", "event"), list(TRANSITIONS))
def test_what_follows_from_a_transition(state: State, event: Event) -> None:
    """R18, R35, R80: an exit makes old figures worthless; leases and waiters hear of every end that is not theirs."""
    transition = TRANSITIONS[state, event]
    then = set(transition.then)
    assert (Consequence.STALE_FIGURES in then) is (event is Event.EXITED)
    assert (Consequence.FORGET in then) is (transition.to is State.GONE)
    # Each begins the stop sequence when it enters `stopping`, and again only to be killed.
    begins = transition.to is State.STOPPING and event is not Event.SPAWNED
    assert (Consequence.STOP in then) is begins
    # Whoever holds a lease, or waits for a load, is told when that ends otherwise than by their own doing.
    ends = event in {Event.EXITED, Event.KILL}
    assert (Consequence.LOSE_LEASES in then) is (ends and state in {State.READY, State.DRAINING})
    fails = (ends or event in {Event.LOAD_FAILED, Event.SPAWN_FAILED}) and state in LOADING
    assert bool(then & {Consequence.FAIL_LOAD, Consequence.FAIL_WAITERS}) is fails
    assert (Consequence.NOTE_CRASH in then) is (event is Event.EXITED and state in {State.READY, State.DRAINING})
    assert (Consequence.CLOSE in then) is (state is State.READY)
