"""What a load is expected to take: the footprint, corrected by what loads of this model took before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .batch import batch_for
from .footprint import Footprint, footprint
from .observed import corrected, observed_before
from .values import DeviceFacts, LaunchConfig, ModelFacts, Observation, Policy

__all__ = ["Expected", "expected"]


@dataclass(frozen=True, slots=True)
class Expected:
    """Bytes. `parts` are as they were estimated, the sums as they are corrected."""

    parts: Footprint
    movable: int
    """Goes where the layers go."""
    host: int
    """Stays in RAM, wherever the layers are."""
    batch: int
    before: Observation | None = None
    """The last load of this very configuration."""

    @property
    def total(self) -> int:
        return self.movable + self.host


def expected(
    model: ModelFacts,
    config: LaunchConfig,
    policy: Policy,
    gpus: Sequence[DeviceFacts] = (),
    *,
    batch: int | None = None,
) -> Expected:
    """As `footprint`, with what was learnt of the model."""
    if batch is None:
        batch = batch_for(model, config, policy, gpus, predicted=0, available=0, layers_on_cpu=True)
    parts = footprint(model, config, policy, gpus, batch=batch)
    if not model.observed:
        return Expected(parts, parts.movable, parts.host, batch)
    before = observed_before(model, config, batch, policy, len(gpus))
    others = [each for each in model.observed if bool(each.gpus) is bool(gpus)]
    in_ram = before.in_ram if before is not None else None
    # The prompt cache is a limit that the user has set: nothing is to be learnt about it.
    host = corrected(parts.host - parts.prompt_cache, in_ram, [each.in_ram for each in others]) + parts.prompt_cache
    if gpus:
        on_gpus = before.on_gpus if before is not None else None
        movable = corrected(parts.movable, on_gpus, [each.on_gpus for each in others])
    else:
        movable = corrected(parts.movable, in_ram, [each.in_ram for each in others])
    return Expected(parts, movable, host, batch, before)
