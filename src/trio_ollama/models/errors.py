"""What can go wrong with names, blobs, manifests and model files; each error knows its HTTP status and its text."""

from __future__ import annotations

__all__ = [
    "BlobNotFoundError",
    "BrokenModelError",
    "CloudDisabledError",
    "CreateError",
    "DigestMismatchError",
    "InvalidDigestError",
    "InvalidGgufError",
    "InvalidNameError",
    "ModelNotFoundError",
    "ModelfileError",
    "ModelsError",
    "StoreUnavailableError",
]


class ModelsError(Exception):
    """Base of the family: `str(error)` is the text for the client, `status` the HTTP status that goes with it."""

    status: int = 500


class InvalidNameError(ModelsError):
    """A model name that the grammar does not allow."""

    status = 400

    def __init__(self, text: str = "invalid model name") -> None:
        super().__init__(text)


class ModelNotFoundError(ModelsError):
    """A valid name without a manifest. Routes word this differently: `name` is what was asked for."""

    status = 404

    def __init__(self, name: str, text: str = "") -> None:
        super().__init__(text or f"model '{name}' not found")
        self.name = name


class CloudDisabledError(ModelsError):
    """A name that asks for a model in the cloud, which this server has no part in."""

    status = 403

    def __init__(self) -> None:
        super().__init__("ollama cloud is disabled: remote model is unavailable")


class InvalidDigestError(ModelsError):
    """Not `sha256:` or `sha256-` and 64 hex digits."""

    status = 400

    def __init__(self) -> None:
        super().__init__("invalid digest format")


class BlobNotFoundError(ModelsError):
    """A well-formed digest that the store has no blob for."""

    status = 404

    def __init__(self, digest: str) -> None:
        super().__init__(f'blob "{digest}" not found')
        self.digest = digest


class DigestMismatchError(ModelsError):
    """The uploaded bytes are not what their digest says; they were thrown away."""

    status = 400

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f'digest mismatch, expected "{expected}", got "{actual}"')


class BrokenModelError(ModelsError):
    """A manifest is there, but it or something it refers to cannot be used; nothing was changed or removed."""


class StoreUnavailableError(ModelsError):
    """The store's directory cannot be read or written: not a directory, read-only, full."""


class InvalidGgufError(ModelsError):
    """`invalid file magic` (no GGUF at all), `unsupported model format: ...` (damaged or too new), or unreadable."""


class CreateError(ModelsError):
    """A create request that cannot be carried out as asked."""

    status = 400


class ModelfileError(ModelsError):
    """A Modelfile that does not follow the grammar."""

    status = 400
