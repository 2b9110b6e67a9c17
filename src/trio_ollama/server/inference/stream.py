"""A generation as the chunks of a response: what all dialects stream in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trio_ollama.server.inference.events import Event
from trio_ollama.server.inference.generation import Generation

__all__ = ["AnswerStream"]


class AnswerStream:
    """One chunk for each batch of events; `encode` is the dialect's."""

    def __init__(self, generation: Generation, encode: Callable[[Sequence[Event]], bytes]) -> None:
        self._generation = generation
        self._encode = encode

    async def receive(self) -> bytes:
        """The next chunk; empty after the last."""
        events = await self._generation.receive()
        return self._encode(events) if events else b""

    def close(self) -> None:
        """Nothing is left to do: the generation lets go at its end, the request's stack if the client leaves before."""
