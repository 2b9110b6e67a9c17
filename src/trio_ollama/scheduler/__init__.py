"""Who may use which model, when, and where: the pure core decides, this package's shell acts."""

from __future__ import annotations

from .core.decisions import Because
from .core.fit import Fit
from .core.values import FOREVER, Demand, LoadOptions, ModelFacts, Observation, Policy, Shape
from .errors import (
    CrashBackoffError,
    ForcedStopError,
    NeverFitsError,
    PredecessorStuckError,
    QueueFullError,
    SchedulingError,
    ShuttingDownError,
)
from .feedback import Feedback
from .lease import Lease
from .limits import Limits
from .scheduler import Scheduler
from .views import RequestView, RunnerView

__all__ = [
    "FOREVER",
    "Because",
    "CrashBackoffError",
    "Demand",
    "Feedback",
    "Fit",
    "ForcedStopError",
    "Lease",
    "Limits",
    "LoadOptions",
    "ModelFacts",
    "NeverFitsError",
    "Observation",
    "Policy",
    "PredecessorStuckError",
    "QueueFullError",
    "RequestView",
    "RunnerView",
    "Scheduler",
    "SchedulingError",
    "Shape",
    "ShuttingDownError",
]
