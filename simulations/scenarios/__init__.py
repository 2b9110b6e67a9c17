"""Scenarios as data, and what comes of them on a scheduler."""

from .play import play
from .run import Run
from .scenario import Fault, Request, Scenario, What

__all__ = ["Fault", "Request", "Run", "Scenario", "What", "play"]
