"""Why a request got no runner, as exceptions with the HTTP status and the text a client sees."""

from __future__ import annotations

from typing import ClassVar

from trio_ollama.runners.contract import LoadFailedError, RunnerError, looks_like_out_of_memory

from .core.decisions import Because
from .core.events import human_bytes

__all__ = [
    "CrashBackoffError",
    "ForcedStopError",
    "NeverFitsError",
    "PredecessorStuckError",
    "QueueFullError",
    "SchedulingError",
    "ShuttingDownError",
    "refusal",
]


UNKNOWN_FORMAT = (
    "unknown model architecture",
    "unsupported model format",
    "bad GGUF version",
    "unsupported GGUF version",
)
INCOMPATIBLE = (
    ": this model may be incompatible with your version of trio-ollama, which a newer version of its runner "
    "(the package xllamacpp, or your llama-server) may mend"
)
"""Added where the runner does not know what it was given; a damaged file says so itself."""


class SchedulingError(Exception):
    """The scheduler refuses a request; nothing was changed by it."""

    status: ClassVar[int] = 500


class QueueFullError(SchedulingError):
    status = 503

    def __init__(self) -> None:
        super().__init__("server busy, please try again.  maximum pending requests exceeded")


class ShuttingDownError(SchedulingError):
    status = 503

    def __init__(self) -> None:
        super().__init__("server is shutting down")


class NeverFitsError(SchedulingError):
    """It cannot be loaded even on the empty machine; nothing was evicted for it (R42)."""


class CrashBackoffError(SchedulingError):
    """Its runner died several times in a row; the text carries the last reason (R78)."""


class PredecessorStuckError(SchedulingError):
    status = 503


class ForcedStopError(RunnerError):
    """The runner was stopped under this request: no fault of the request's, and none of the runner's."""

    status: ClassVar[int] = 503


def refusal(because: Because, facts: str, model: str) -> Exception:
    """The exception for a refused waiter of `model`."""
    match because:
        case Because.QUEUE_FULL:
            return QueueFullError()
        case Because.SHUTTING_DOWN:
            return ShuttingDownError()
        case Because.FORCED:
            return ForcedStopError(facts)
        case Because.NEVER_FITS:
            needed, there = (human_bytes(int(amount)) for amount in facts.split())
            return NeverFitsError(f"model requires more system memory ({needed}) than is available ({there})")
        case Because.CRASH_BACKOFF:
            return CrashBackoffError(f'model "{model}" failed several times in a row and is not tried for now: {facts}')
        case Because.PREDECESSOR_STUCK:
            return PredecessorStuckError(
                f'model "{model}" is unavailable: its previous runner ({facts}) has not exited'
            )
        case _:
            hint = INCOMPATIBLE if any(mark in facts for mark in UNKNOWN_FORMAT) else ""
            return LoadFailedError(facts + hint, out_of_memory=looks_like_out_of_memory(facts))
