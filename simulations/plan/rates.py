"""How fast models are: what a forecast of times is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["DEFAULT", "ModelRates", "Rates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRates:
    """Of one model, alone on its devices. Seconds."""

    load_constant: float = 1.0
    """Of each load, beside the time that its bytes take."""
    prefill: float = 1000.0
    """Tokens of a prompt per second."""
    token: float = 0.02
    """For each token of an answer after its first."""
    overhead: float = 0.01
    """Of each call, for all else."""


DEFAULT: Final = ModelRates()
"""Stated, not measured: a small model on a modest GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    models: Mapping[str, ModelRates] = field(default_factory=dict)
    usual: ModelRates = DEFAULT
    """Of a model that nothing was measured of."""
    load_byte: float = 1 / (1 << 30)
    """Seconds of a load for each byte of the model's file."""
    within: float = 0.3
    """What one more call in the same runner adds to the time of each: 0 for batching at no cost, 1 for taking turns."""
    beside: float = 1.0
    """The same for one more busy runner on the same device."""
    exit: float = 0.3
    """Seconds from the decision to stop an idle runner until it is gone."""
    speed: float = 1.0
    """So many times as fast is the machine that is planned for: all computing, not the loads."""

    def of(self, model: str) -> ModelRates:
        return self.models.get(model, self.usual)

    def load(self, model: str, file_size: int) -> float:
        """Seconds to load a model from a file of so many bytes."""
        return self.of(model).load_constant + self.load_byte * file_size

    def slowdown(self, others: int, runners: int) -> float:
        """How many times as long everything takes beside `others` calls of its runner and `runners` busy runners."""
        return 1 + self.within * others + self.beside * runners
