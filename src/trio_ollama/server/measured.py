"""What models have really taken, kept over restarts: one small JSON file in the user's cache.

Not in the store: that may be somebody else's, and what a model takes is a matter of the machine, which may share its
store with others. Models are known by their content, so any number of stores may have the same file.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from trio_ollama.models.files import read_bounded, replace_file
from trio_ollama.scheduler import Feedback, Observation

__all__ = ["MeasuredFile", "feedback_of"]

NAME: Final = "measured.json"
VERSION: Final = 1
LIMIT: Final = 4 << 20

logger = logging.getLogger(__name__)


class _Content(msgspec.Struct):
    version: int
    models: dict[str, list[Observation]]


class MeasuredFile:
    """The file in `folder`, which need not exist. Both methods block."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME

    def read(self) -> Mapping[str, Sequence[Observation]]:
        """Observations by model; nothing if there is no file, or none that can be understood."""
        try:
            content = msgspec.json.decode(read_bounded(self.path, LIMIT), type=_Content)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            logger.warning("%s is not used: %s", self.path, error)
            return {}
        return content.models if content.version == VERSION else {}

    def write(self, history: Mapping[str, Sequence[Observation]]) -> None:
        """Replace it. Raises OSError."""
        models = {key: list(observations) for key, observations in history.items()}
        replace_file(self.path, msgspec.json.encode(_Content(VERSION, models)))


def feedback_of(folder: Path | None) -> Feedback:
    """What is known of models, to be kept in `folder` (blocking); only in memory if there is none."""
    if folder is None:
        return Feedback()
    file = MeasuredFile(folder)
    return Feedback(file.read(), file.write)
