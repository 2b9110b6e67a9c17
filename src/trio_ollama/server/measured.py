"""What models have really taken, kept over restarts: one small JSON file in a folder of ours beside the blobs.

Ollama looks at nothing but `manifests` and `blobs` of a store and leaves the rest alone, as we leave what is its own.
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

FOLDER: Final = "trio-ollama"
NAME: Final = "measured.json"
VERSION: Final = 1
LIMIT: Final = 4 << 20

logger = logging.getLogger(__name__)


class _Content(msgspec.Struct):
    version: int
    models: dict[str, list[Observation]]


class MeasuredFile:
    """The file of the store at `root`. Both methods block."""

    def __init__(self, root: Path) -> None:
        self.path = root / FOLDER / NAME

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
        """Replace it. Raises OSError; a store that is not there is not made for this."""
        if not self.path.parent.parent.is_dir():
            raise FileNotFoundError(f"there is no store at {self.path.parent.parent}")
        models = {key: list(observations) for key, observations in history.items()}
        replace_file(self.path, msgspec.json.encode(_Content(VERSION, models)))


def feedback_of(root: Path) -> Feedback:
    """What is known of the models in the store at `root`, to be kept there (blocking)."""
    file = MeasuredFile(root)
    return Feedback(file.read(), file.write)
