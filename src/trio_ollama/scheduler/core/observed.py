"""How far off estimates of a model's memory have been, and what the next one learns from that.

The footprint is corrected, never upstream's formula: that one decides what fits as clients expect it. A load of the
same configuration takes what it took before. One of another configuration is only ever corrected upwards: a model that
was underestimated once will be again, but what a short context left unused says nothing of a long one.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from .values import LaunchConfig, ModelFacts, Observation, Policy

__all__ = ["corrected", "identity", "observed_before"]

LEAST: Final = Fraction(1, 2)
MOST: Final = Fraction(2)
"""A correction never goes further: what is beyond these is a broken measurement rather than a wrong estimate."""


def identity(model: ModelFacts) -> str:
    """What observations belong to: the files that are loaded together, by content where their names tell it."""
    files = (model.path, *model.projectors[:1], *model.adapters, *((model.draft,) if model.draft else ()))
    return "+".join(_content(file) for file in files)


def _content(path: str) -> str:
    name = path.rpartition("/")[2]
    return name if name.startswith("sha256-") else path


def observed_before(
    model: ModelFacts, config: LaunchConfig, batch: int, policy: Policy, gpus: int
) -> Observation | None:
    """The last load of this very configuration, if there was one."""
    launch = (config.num_ctx, config.parallel, batch, policy.cache_type, gpus)
    return next((each for each in reversed(model.observed) if each.launch == launch), None)


def corrected(amount: int, exact: Fraction | None, others: Iterable[Fraction | None]) -> int:
    """`amount` bytes of an estimate, by what is known of the same launch, else by the worst of other ones."""
    factor = exact if exact is not None else max((each for each in others if each is not None), default=Fraction(1))
    factor = min(max(factor, LEAST if exact is not None else Fraction(1)), MOST)
    return -(-amount * factor.numerator // factor.denominator)
