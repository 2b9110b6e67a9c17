"""What can go wrong with a registry; the text is for the client."""

from __future__ import annotations

from trio_ollama.models.errors import ModelsError

__all__ = ["AnswerError", "ConnectionFailedError", "DownloadCorruptError", "RangesIgnoredError", "RegistryError"]


class RegistryError(ModelsError):
    """Base of the family."""


class ConnectionFailedError(RegistryError):
    """The registry was not reached, or broke off in the middle: trying again may help."""


class AnswerError(RegistryError):
    """The registry answered with an error. `code` is its status, the text `<code>: <what it said>`."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{code}: {said}" if said else str(code))
        self.code = code

    @property
    def passing(self) -> bool:
        """Whether trying again may help."""
        return self.code >= 500 or self.code in (408, 429)


class RangesIgnoredError(RegistryError):
    """A server sends all of a blob where a part was asked for."""


class DownloadCorruptError(RegistryError):
    """All of a blob was fetched, and it is something else; it was thrown away."""

    def __init__(self, want: str, got: str) -> None:
        super().__init__(f"digest mismatch, file must be downloaded again: want {want}, got {got}")
