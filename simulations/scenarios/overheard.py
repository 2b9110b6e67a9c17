"""What the scheduler complains about in its log: a fault of ours that it has survived is a fault all the same."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["leaves", "overheard"]

LOG: Final = logging.getLogger("trio_ollama.scheduler")
PLANTED: Final = (ValueError, OSError)
"""What simulated machines and processes raise when they are told to."""


class _Ear(logging.Handler):
    def __init__(self, broken: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._broken = broken

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._broken += [
                f"fault: {record.getMessage()}: {leaf!r}" for leaf in leaves(error) if not isinstance(leaf, PLANTED)
            ]


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions themselves, without the groups that they come in."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


@contextmanager
def overheard(broken: list[str]) -> Iterator[None]:
    """Unexpected exceptions that are logged become broken rules; nothing of the log goes anywhere else."""
    ear, before = _Ear(broken), (LOG.propagate, LOG.level)
    LOG.addHandler(ear)
    LOG.propagate = False
    LOG.setLevel(logging.ERROR)
    try:
        yield
    finally:
        LOG.removeHandler(ear)
        LOG.propagate = before[0]
        LOG.setLevel(before[1])
