"""What the control does, in words, for the trace."""

from __future__ import annotations

from dataclasses import dataclass

from trio_ollama.scheduler.core.events import Event

__all__ = ["Said"]


@dataclass(frozen=True, slots=True)
class Said(Event):
    what: str

    def text(self) -> str:
        return f"control: {self.what}"
