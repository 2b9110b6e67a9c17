"""What all requests of one `run` have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trio_ollama.cli.client import Client, Json

__all__ = ["Session"]


@dataclass
class Session:
    """A model, how it is to be asked, and the conversation so far. The slash commands change it."""

    client: Client
    model: str
    info: Json
    """The answer of `/api/show`."""
    think: bool | str | None = None
    """As the user wants it; None: as the model can."""
    hide_thinking: bool = False
    format: str | Json = ""
    keep_alive: str = ""
    verbose: bool = False
    wrap: bool = True
    system: str = ""
    """In the place of the model's own, if it is not empty."""
    options: Json = field(default_factory=dict)
    messages: list[Json] = field(default_factory=list)
    """What was said here; the model's stored messages stand in front of it, which is the server's work."""

    @property
    def capabilities(self) -> list[str]:
        """Of the model."""
        return self.info.get("capabilities") or []

    @property
    def takes_attachments(self) -> bool:
        """Whether paths in a message are files to send along."""
        return not {"vision", "audio"}.isdisjoint(self.capabilities)

    def body(self, **fields: Any) -> Json:
        """A request body: `fields`, and of the common ones those that say something."""
        think = True if self.think is None and "thinking" in self.capabilities else self.think
        common = {
            "think": think,
            "format": self.format or None,
            "keep_alive": self.keep_alive or None,
            "options": self.options or None,
        }
        return {"model": self.model, **{name: value for name, value in common.items() if value is not None}, **fields}

    def conversation(self) -> list[Json]:
        """The messages of a chat request, without the next question."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.messages]
