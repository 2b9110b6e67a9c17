"""What a client is told when something fails: one status and one text, whatever the dialect wraps round them.

Routes raise; `describe` turns whatever was raised into `(status, text)`. It is the only place that knows how the
errors of the store, the scheduler and the runners become HTTP statuses.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from trio_ollama.models.errors import ModelsError
from trio_ollama.runners.contract import RunnerDiedError, RunnerError, RunnerRefusedError
from trio_ollama.scheduler import CrashBackoffError, ForcedStopError, NeverFitsError, SchedulingError
from trio_ollama.server.body import BodyError

__all__ = ["MID_STREAM", "ApiError", "CanceledError", "describe", "describe_mid_stream", "worth_retrying"]

logger = logging.getLogger(__name__)

MID_STREAM: Final = "an error was encountered while running the model: "
"""How the text of a runner's failure begins when the answer had begun."""


class ApiError(Exception):
    """An answer that is an error: `status` is the HTTP status, the text is for the client.

    `retry`: the same request may be answered if it is made again soon, as far as the status allows for that.
    """

    def __init__(self, status: int, text: str, *, retry: bool = True) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry = retry


class CanceledError(ApiError):
    """Somebody has cancelled the request by its id."""

    def __init__(self) -> None:
        super().__init__(499, "request canceled", retry=False)


def describe(error: Exception) -> tuple[int, str]:
    """HTTP status and text for an error. What nobody foresaw is logged and becomes a 500 without details."""
    match error:
        case ApiError() | ModelsError() | BodyError() | SchedulingError() | ForcedStopError() | RunnerRefusedError():
            return error.status, str(error)
        case RunnerError():
            return 500, str(error)
        case trio.BrokenResourceError():
            return 499, "request canceled"  # nobody reads this; the access log does
        case OSError():
            # A disk that is full or a file that is gone: the reason helps the user, the traceback the log.
            logger.error("request failed", exc_info=error)
            return 500, str(error)
        case _:
            logger.error("unexpected error in a request", exc_info=error)
            return 500, "internal server error"


def worth_retrying(error: Exception) -> bool:
    """False where somebody wants it so, or where it would only fail again: official clients try again by themselves."""
    if isinstance(error, ApiError):
        return error.retry
    return not isinstance(error, ForcedStopError | NeverFitsError | CrashBackoffError)


def describe_mid_stream(error: Exception) -> tuple[int, str]:
    """As `describe`, for an answer that has begun: a runner's death is told as such (R80)."""
    status, text = describe(error)
    if isinstance(error, RunnerDiedError) and not text.startswith(MID_STREAM):
        text = MID_STREAM + text
    return status, text
