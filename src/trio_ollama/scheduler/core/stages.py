"""Where a request is on its way: the stages, and which reason for waiting belongs to which (I13 counts all but two)."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from .decisions import Because
from .records import Waiter

__all__ = ["STAGE_OF", "Stage", "stage"]


class Stage(StrEnum):
    QUEUED = "queued"
    WAITING_FOR_DRAIN = "waiting for drain"
    WAITING_FOR_LOAD = "waiting for load"
    WAITING_FOR_SLOT = "waiting for slot"
    RUNNING = "running"
    DONE = "done"


STAGE_OF: Final = MappingProxyType(
    {
        Because.BEHIND: Stage.QUEUED,
        Because.BEHIND_OWN_MODEL: Stage.QUEUED,
        Because.DEVICE_LOADING: Stage.QUEUED,
        Because.MEASURING: Stage.QUEUED,
        Because.RUNNER_CLAIMED: Stage.WAITING_FOR_DRAIN,
        Because.PREDECESSOR_DRAINING: Stage.WAITING_FOR_DRAIN,
        Because.EVICTING_IDLE: Stage.WAITING_FOR_DRAIN,
        Because.EVICTING_BUSY: Stage.WAITING_FOR_DRAIN,
        Because.EVICTING_ALL: Stage.WAITING_FOR_DRAIN,
        Because.MEMORY_DRAINING: Stage.WAITING_FOR_DRAIN,
        Because.MEMORY_RETURNING: Stage.WAITING_FOR_DRAIN,
        Because.LOADING: Stage.WAITING_FOR_LOAD,
        Because.OTHER_CONFIG_LOADING: Stage.WAITING_FOR_LOAD,
    }
)


def stage(waiter: Waiter) -> Stage:
    """The stage of a request that holds no lease."""
    return Stage.QUEUED if waiter.wait is None else STAGE_OF[waiter.wait.because]
