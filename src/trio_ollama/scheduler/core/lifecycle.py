"""The life of a runner, as a table: which event takes which state where.

States only move forward; a (state, event) pair that is not in the table is a fault of ours and raises
`IllegalTransitionError`. A *claim* is no state (planner: it belongs to the waiter and goes with it).
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = ["ALIVE", "COUNTED", "LOADING", "TRANSITIONS", "Event", "IllegalTransitionError", "State", "advance"]


class State(StrEnum):
    SPAWNING = "spawning"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    RECOVERING = "recovering"
    GONE = "gone"


class Event(StrEnum):
    SPAWNED = "spawned"
    SPAWN_FAILED = "spawn failed"
    LOADED = "loaded"
    LOAD_FAILED = "load failed"
    ABORT = "abort"
    """Nobody waits for this load any more."""
    DRAIN = "drain"
    """No new leases; sticky (I16)."""
    STOP = "stop"
    """Draining, and the last lease has ended."""
    KILL = "kill"
    """Forced stop, hung runner, or shutdown: its leases end with an error."""
    EXITED = "exited"
    """The process is reaped."""
    RECOVERED = "recovered"
    """Its memory is back, or cannot be waited for any longer."""


S, E = State, Event

TRANSITIONS: Final = MappingProxyType(
    {
        (S.SPAWNING, E.SPAWNED): S.LOADING,
        (S.SPAWNING, E.SPAWN_FAILED): S.GONE,
        (S.SPAWNING, E.ABORT): S.STOPPING,
        (S.SPAWNING, E.KILL): S.STOPPING,
        (S.SPAWNING, E.EXITED): S.RECOVERING,
        (S.LOADING, E.LOADED): S.READY,
        (S.LOADING, E.LOAD_FAILED): S.STOPPING,
        (S.LOADING, E.ABORT): S.STOPPING,
        (S.LOADING, E.KILL): S.STOPPING,
        (S.LOADING, E.EXITED): S.RECOVERING,
        (S.READY, E.DRAIN): S.DRAINING,
        (S.READY, E.KILL): S.STOPPING,
        (S.READY, E.EXITED): S.RECOVERING,
        (S.DRAINING, E.DRAIN): S.DRAINING,
        (S.DRAINING, E.STOP): S.STOPPING,
        (S.DRAINING, E.KILL): S.STOPPING,
        (S.DRAINING, E.EXITED): S.RECOVERING,
        (S.STOPPING, E.SPAWNED): S.STOPPING,  # aborted between the decision and the spawn
        (S.STOPPING, E.SPAWN_FAILED): S.GONE,
        (S.STOPPING, E.KILL): S.STOPPING,
        (S.STOPPING, E.EXITED): S.RECOVERING,
        (S.RECOVERING, E.RECOVERED): S.GONE,
    }
)

LOADING: Final = frozenset({S.SPAWNING, S.LOADING})
ALIVE: Final = frozenset({S.SPAWNING, S.LOADING, S.READY, S.DRAINING, S.STOPPING})
"""States that have a process (I01)."""
COUNTED: Final = frozenset({S.SPAWNING, S.LOADING, S.READY, S.DRAINING})
"""States that count towards the model limit (I14)."""


class IllegalTransitionError(AssertionError):
    """An event that the state does not know: the caller lost track of a generation."""


def advance(state: State, event: Event) -> State:
    """The state after `event`; raises `IllegalTransitionError` for a pair that is not in the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"a runner in state {state.value!r} cannot take {event.value!r}") from None
