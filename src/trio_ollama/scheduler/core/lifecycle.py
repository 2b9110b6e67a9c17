"""The life of a runner, as a table: which event takes which state where, and what follows from it.

States only move forward; a (state, event) pair that is not in the table is a fault of ours and raises
`IllegalTransitionError`, which ends that runner and nothing else. A *claim* is no state (planner: it belongs to the
waiter and goes with it).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

__all__ = [
    "ALIVE",
    "COUNTED",
    "DRAINING",
    "ENDING",
    "LOADING",
    "READY",
    "RECOVERING",
    "TRANSITIONS",
    "Consequence",
    "Event",
    "IllegalTransitionError",
    "State",
    "Transition",
    "advance",
]


class State(StrEnum):
    SPAWNING = "spawning"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    RECOVERING = "recovering"
    GONE = "gone"

    __hash__ = str.__hash__  # as fast as that of a str, which an enum's own is not


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

    __hash__ = str.__hash__


class Consequence(StrEnum):
    """What the fleet does in the step of a transition, in the order of the table."""

    CLOSE = "no keep-alive ends it and nobody claims it"
    STOP = "the stop sequence begins"
    STALE_FIGURES = "memory is measured anew before the next load"
    FAIL_LOAD = "its waiters get the error, unless it is tried once more"
    FAIL_WAITERS = "its waiters get the error"
    NOTE_CRASH = "one more crash of its model in a row"
    LOSE_LEASES = "its leases end with the error"
    FORGET = "its record goes"


@dataclass(frozen=True, slots=True)
class Transition:
    to: State
    then: tuple[Consequence, ...] = ()


S, E, C = State, Event, Consequence

TRANSITIONS: Final = MappingProxyType(
    {
        (S.SPAWNING, E.SPAWNED): Transition(S.LOADING),
        (S.SPAWNING, E.SPAWN_FAILED): Transition(S.GONE, (C.FAIL_LOAD, C.FORGET)),
        (S.SPAWNING, E.ABORT): Transition(S.STOPPING, (C.STOP,)),
        (S.SPAWNING, E.KILL): Transition(S.STOPPING, (C.STOP, C.FAIL_WAITERS)),
        (S.SPAWNING, E.EXITED): Transition(S.RECOVERING, (C.STALE_FIGURES, C.FAIL_LOAD)),
        (S.LOADING, E.LOADED): Transition(S.READY),
        (S.LOADING, E.LOAD_FAILED): Transition(S.STOPPING, (C.STOP, C.FAIL_LOAD)),
        (S.LOADING, E.ABORT): Transition(S.STOPPING, (C.STOP,)),
        (S.LOADING, E.KILL): Transition(S.STOPPING, (C.STOP, C.FAIL_WAITERS)),
        (S.LOADING, E.EXITED): Transition(S.RECOVERING, (C.STALE_FIGURES, C.FAIL_LOAD)),
        (S.READY, E.DRAIN): Transition(S.DRAINING, (C.CLOSE,)),
        (S.READY, E.KILL): Transition(S.STOPPING, (C.CLOSE, C.STOP, C.LOSE_LEASES)),
        (S.READY, E.EXITED): Transition(S.RECOVERING, (C.CLOSE, C.STALE_FIGURES, C.NOTE_CRASH, C.LOSE_LEASES)),
        (S.DRAINING, E.DRAIN): Transition(S.DRAINING),
        (S.DRAINING, E.STOP): Transition(S.STOPPING, (C.STOP,)),
        (S.DRAINING, E.KILL): Transition(S.STOPPING, (C.STOP, C.LOSE_LEASES)),
        (S.DRAINING, E.EXITED): Transition(S.RECOVERING, (C.STALE_FIGURES, C.NOTE_CRASH, C.LOSE_LEASES)),
        (S.STOPPING, E.SPAWNED): Transition(S.STOPPING),  # aborted between the decision and the spawn
        (S.STOPPING, E.SPAWN_FAILED): Transition(S.GONE, (C.FORGET,)),
        (S.STOPPING, E.KILL): Transition(S.STOPPING, (C.STOP,)),
        (S.STOPPING, E.EXITED): Transition(S.RECOVERING, (C.STALE_FIGURES,)),
        (S.RECOVERING, E.RECOVERED): Transition(S.GONE, (C.FORGET,)),
    }
)

LOADING: Final = frozenset({S.SPAWNING, S.LOADING})
ALIVE: Final = frozenset({S.SPAWNING, S.LOADING, S.READY, S.DRAINING, S.STOPPING})
"""States that have a process (I01)."""
COUNTED: Final = frozenset({S.SPAWNING, S.LOADING, S.READY, S.DRAINING})
"""States that count towards the model limit (I14)."""
ENDING: Final = frozenset({S.STOPPING, S.RECOVERING})
"""States whose bytes come back without anybody's doing."""
READY: Final = S.READY
DRAINING: Final = S.DRAINING
RECOVERING: Final = S.RECOVERING
"""For the planner's loops: before Python 3.12 a member of an enum takes ten times as long to find as a name."""


class IllegalTransitionError(AssertionError):
    """An event that the state does not know: the caller lost track of a generation."""


def advance(state: State, event: Event) -> Transition:
    """Where `event` leads from `state`; raises `IllegalTransitionError` for a pair that is not in the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"a runner in state {state.value!r} cannot take {event.value!r}") from None
