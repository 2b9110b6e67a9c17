"""Ctrl-C where it may come, and nowhere else."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

__all__ = ["Interrupts", "interrupts"]


class Interrupts:
    """What SIGINT does meanwhile: it ends the block of `allowed`, once."""

    def __init__(self) -> None:
        self._pressed = self._armed = False

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Ctrl-C, now or just before, raises KeyboardInterrupt in this block."""
        try:
            self._armed = True
            if self._pressed:
                raise KeyboardInterrupt
            yield
        finally:
            self._armed = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Of the signal."""
        self._pressed = True
        if self._armed:
            self._armed = False  # the next one must not hit the cleaning up
            raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """For the length of the block Ctrl-C comes through `allowed` alone: what stands around that happens as a whole."""
    state = Interrupts()
    before = signal.signal(signal.SIGINT, state.handle)
    try:
        yield state
    finally:
        signal.signal(signal.SIGINT, before)
