"""The mutable records of the fleet: runner generations, their leases, and waiters. Only its parts write them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .decisions import Because, Wait
from .lifecycle import COUNTED, LOADING, State
from .values import MODELS, Demand, LaunchConfig, ModelFacts, Observation, Placement

__all__ = ["NOTHING", "Lease", "OomRetry", "Runner", "Waiter"]

NOTHING: Final[frozenset[int]] = frozenset()
"""The generations that whoever claims none wants gone."""


@dataclass(slots=True, eq=False)
class Lease:
    """One request's right to use one runner generation (I03). A lease is not a slot."""

    seq: int
    demand: Demand
    wants_slot: bool
    holds_slot: bool = False
    since: int = 0
    """When it was granted, or wanted or got a slot, whichever was last; for people."""


@dataclass(slots=True, eq=False)
class Runner:
    """One generation of a runner, from the decision to load it until its memory is back."""

    gen: int
    model: ModelFacts
    config: LaunchConfig
    placement: Placement
    reservation: Mapping[str, int]
    keep_alive: int
    state: State = State.SPAWNING
    began: int = 0
    """When it was decided to load it."""
    pid: int | None = None
    leases: dict[int, Lease] = field(default_factory=dict)
    slot_queue: deque[int] = field(default_factory=deque)
    """Leases that wait for a slot, in order."""
    held_slots: int = 0
    """Slots in use: held by leases, or by calls whose end the child has not confirmed yet (R08)."""
    served: int = 0
    """Leases ever granted."""
    deadline: int | None = None
    """When keep-alive ends, while idle; None while busy, or for ever."""
    armed: bool = False
    """The current idle period has its deadline (I15)."""
    finish_load: bool = False
    """Its load goes on when nobody waits for it any more: the wish of whoever waited last (R03)."""
    closed_after: int | None = None
    """Stopped during its load: only requests up to this seq are served (R26)."""
    claimed_by: int | None = None
    """The waiter that wants it gone; closed to all later ones (I16). Taken back when that waiter leaves."""
    drain_because: Because | None = None
    stuck: bool = False
    """SIGKILL did not end it (R71); its bytes stay reserved."""
    total_bytes: int = 0
    gpu_bytes: int = 0
    context: int = 0
    """Effective context per slot in tokens, as the runner reports it."""
    report: Any = None
    observation: Observation | None = None
    """How the estimate compares with what it takes, once that has been measured."""

    @property
    def key(self) -> str:
        return self.model.key

    @property
    def slots(self) -> int:
        return self.config.parallel

    @property
    def loading(self) -> bool:
        return self.state in LOADING

    @property
    def counted(self) -> bool:
        return self.state in COUNTED

    @property
    def busy(self) -> bool:
        return bool(self.leases)

    @property
    def free_slots(self) -> int:
        """Slots nobody holds or waits for; a new lease goes behind those that wait."""
        return max(0, self.slots - self.held_slots - len(self.slot_queue))

    def holds(self, resource: str) -> int:
        """Bytes of `resource` that are reserved for this runner (units, for the model limit: I14)."""
        if resource == MODELS:
            return 1 if self.counted else 0
        return 0 if self.state is State.GONE else self.reservation.get(resource, 0)

    def held(self) -> Mapping[str, int]:
        """All that is reserved for this runner, by resource."""
        if self.state in COUNTED:
            return self.reservation
        return {} if self.state is State.GONE else {**self.reservation, MODELS: 0}

    def open_to(self, seq: int) -> bool:
        """False for requests that came after a stop during its load."""
        return self.closed_after is None or seq <= self.closed_after


@dataclass(slots=True, eq=False)
class Waiter:
    """A request that holds no lease yet."""

    seq: int
    demand: Demand
    wanted: LaunchConfig
    arrived: int
    admitted: bool = False
    claim: frozenset[int] = frozenset()
    """Generations it wants gone; goes with it (planner, row 3)."""
    wait: Wait | None = None
    """The last published reason for waiting."""
    since: int = 0
    """Since when that is the reason; for people."""
    behind: int | None = None
    """The earlier waiter for the same model that it stands behind, if that is all it waits for."""
    key: str = field(init=False)
    """Of its model."""

    def __post_init__(self) -> None:
        self.key = self.demand.model.key


@dataclass(slots=True, eq=False)
class OomRetry:
    """The one retry a load gets after running out of memory (R48, R49); lives while somebody waits for the key."""

    num_ctx: int | None
    """The reduced context; None: it stays as it is."""
    alone: bool
    """Everything else must be gone first."""
    projector_on_cpu: bool = False
    """Images are encoded on the CPU then, which is slow, but one that does not fit would end the process."""
