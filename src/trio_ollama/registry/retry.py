"""Trying again: for as long as it brings anything, with pauses that grow, and a cancel at any moment."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import trio

from .errors import AnswerError, ConnectionFailedError, RegistryError
from .limits import Limits

__all__ = ["persist", "repeat"]

logger = logging.getLogger(__name__)


async def persist(
    what: object, attempt: Callable[[], Awaitable[None]], progress: Callable[[], int], limits: Limits
) -> None:
    """Move bytes: attempts that brought some (`progress` grew) do not count.

    An answer that refuses is tried once more, because addresses grow old. Raises RegistryError `max retries exceeded`
    after so many attempts in a row that brought nothing, and at once what no attempt can mend.
    """
    failures = 0
    while True:
        before = progress()
        try:
            return await attempt()
        except (ConnectionFailedError, AnswerError) as error:
            failures = 1 if progress() > before else failures + 1
            if isinstance(error, AnswerError) and not error.passing and failures > 1:
                raise
            if failures >= limits.tries:
                raise RegistryError(f"max retries exceeded: {error}") from error
            logger.info("%s, trying again (%d): %s", what, failures, error)
        await trio.sleep(limits.pause(failures))


async def repeat(what: object, attempt: Callable[[], Awaitable[None]], within: float, limits: Limits) -> None:
    """Make a small request, again until so many seconds after the first attempt.

    Raises what the last attempt raised; at once what the registry refuses.
    """
    failures, end = 0, trio.current_time() + within
    while True:
        try:
            return await attempt()
        except (ConnectionFailedError, AnswerError) as error:
            failures += 1
            pause = limits.short_pause(failures)
            if (isinstance(error, AnswerError) and not error.passing) or trio.current_time() + pause > end:
                raise
            logger.debug("%s, trying again (%d): %s", what, failures, error)
        await trio.sleep(pause)
