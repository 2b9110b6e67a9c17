"""The life of a runner as a table: what is not in it is a fault, and nothing ever goes back (I16)."""

from __future__ import annotations

import pytest

from trio_ollama.scheduler.core.lifecycle import (
    ALIVE,
    COUNTED,
    LOADING,
    TRANSITIONS,
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
    after = advance(state, event)
    assert after is TRANSITIONS[state, event]
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
        reached |= {state for (state, _), after in TRANSITIONS.items() if after in reached}
    assert reached == set(State)


@pytest.mark.parametrize("state", [state for state in State if state is not State.GONE])
def test_I01_a_state_with_a_process_knows_its_exit(state: State) -> None:
    knows = TRANSITIONS.get((state, Event.EXITED)) is State.RECOVERING
    assert knows is (state in ALIVE)


def test_I14_a_runner_counts_towards_the_limit_until_it_stops() -> None:
    assert ALIVE - {State.STOPPING} == COUNTED
    assert LOADING < COUNTED


def test_a_runner_is_only_ready_after_a_load_and_only_once() -> None:
    assert [pair for pair, after in TRANSITIONS.items() if after is State.READY] == [(State.LOADING, Event.LOADED)]
