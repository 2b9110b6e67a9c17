"""A pull or a push under way, as the request sees it that wants it: news to tell, and an end.

The work runs in the registry's nursery and never waits for whoever reads: of each blob only the latest progress is
kept, so a slow client neither slows a download nor costs memory. It lives no longer than the request: `cancel` is
what the request's exit stack calls, however the request ends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from trio_ollama.models.create import Progress

__all__ = ["Progress", "Tell", "Transfer"]

Tell = Callable[[Progress], None]


class Transfer:
    """One client's transfer. Synchronous but for `news`, so that it can be left at any time."""

    def __init__(self) -> None:
        self._news: dict[str, Progress] = {}
        """By digest or text, in order: one entry for each blob and each step, so a manifest's size is the bound."""
        self._changed = trio.Event()
        self._scope = trio.CancelScope()
        self.ended = False
        self._error: Exception | None = None

    def tell(self, progress: Progress) -> None:
        """What the client is to know; takes the place of older news of the same blob."""
        self._news[progress.digest or progress.status] = progress
        self._changed.set()

    async def news(self) -> list[Progress]:
        """What happened since the last time, at least one; none after the end. Raises what ended the transfer."""
        while not self._news and not self.ended:
            await self._changed.wait()
            self._changed = trio.Event()
        if self._news:
            told = list(self._news.values())
            self._news.clear()
            return told
        if self._error is not None:
            raise self._error
        return []

    def cancel(self) -> None:
        """Nobody wants it any more. Harmless after its end."""
        self._scope.cancel("the client has left")

    async def run(self, work: Callable[[Tell], Awaitable[None]]) -> None:
        """Do the work; its error is kept for `news`."""
        with self._scope:
            try:
                await work(self.tell)
            except Exception as error:
                self._error = error
            self.ended = True
        if not self.ended:
            self.ended, self._error = True, trio.BrokenResourceError("the transfer was cancelled")
        self._changed.set()
