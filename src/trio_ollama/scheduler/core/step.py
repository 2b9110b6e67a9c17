"""What the parts of the fleet share: the instant of the step that is under way, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable

from .effects import Effect
from .events import Event

__all__ = ["Step"]


class Step:
    """The present one (I17). It leaves effects for the shell (`emit`) and events for whoever listens (`publish`)."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self.now = 0
        """Nanoseconds of the monotonic clock."""
        self._effects: list[Effect] = []
        self.emit = self._effects.append
        self.publish = on_event

    def take_effects(self) -> list[Effect]:
        """Those that nobody has taken yet, in order."""
        effects = self._effects.copy()
        self._effects.clear()
        return effects
