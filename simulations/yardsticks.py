"""What both worlds judge by: the order of a runner's states, and what makes a request's wait a head start."""

from __future__ import annotations

from typing import Final

from trio_ollama.scheduler.core.decisions import Because
from trio_ollama.scheduler.core.lifecycle import State

__all__ = ["HEAD_STARTS", "ORDER"]

ORDER: Final = {state: rank for rank, state in enumerate(State)}
"""States only go forward (I16)."""
HEAD_STARTS: Final = (Because.LOADING, Because.MEMORY_RETURNING, Because.EVICTING_IDLE, Because.MEASURING)
"""Reasons to wait that the queue's bound spares (I13); a load only for the one that it was started for."""
