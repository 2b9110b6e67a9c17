"""Go's contexts: something that ends once, and that only those who look at it hear of."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import trio

from .channel import Channel

__all__ = ["Context", "ContextCanceledError"]


class ContextCanceledError(Exception):
    def __init__(self) -> None:
        super().__init__("context canceled")


class Context:
    """`done` is closed when it ends."""

    def __init__(self) -> None:
        self.done: Channel[None] = Channel()
        self._scopes: dict[trio.CancelScope, None] = {}

    @property
    def cancelled(self) -> bool:
        return self.done.closed

    def cancel(self) -> None:
        """Idempotent."""
        if not self.cancelled:
            self.done.close()
            for scope in list(self._scopes):
                scope.cancel()

    @contextmanager
    def governing(self) -> Generator[None, None, None]:
        """What is awaited inside looks at this context: raises `ContextCanceledError` when it ends first."""
        with trio.CancelScope() as scope:
            self._scopes[scope] = None
            try:
                if self.cancelled:
                    scope.cancel()
                yield
            finally:
                del self._scopes[scope]
        if scope.cancelled_caught:
            raise ContextCanceledError
