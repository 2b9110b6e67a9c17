"""The key pair that signs us in at a registry: `~/.ollama/id_ed25519`, shared with an Ollama beside us.

Made only when a registry asks for it: whoever pulls public models needs none. All methods block.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import tempfile
from pathlib import Path

from .errors import RegistryError

__all__ = ["Keys"]

logger = logging.getLogger(__name__)


class Keys:
    """A private key as OpenSSH writes it, readable by its owner alone, and the public one beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sign(self, message: bytes) -> str:
        """`<public key>:<signature>`, both in base64. Raises RegistryError if there is no usable key."""
        # Some megabytes and a tenth of a second that most daemons never need.
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        try:
            if not self.path.exists():
                self._create()
            private = serialization.load_ssh_private_key(self.path.read_bytes(), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise RegistryError(f"the key {self.path} cannot be used: {error}") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise RegistryError(f"the key {self.path} cannot be used: it is no ed25519 key")
        public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        return f"{public.decode().split(' ')[1]}:{base64.b64encode(private.sign(message)).decode()}"

    def _create(self) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        logger.warning("Couldn't find '%s'. Generating new private key.", self.path)
        private = Ed25519PrivateKey.generate()
        secret = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A file of our own alone, and readable by us alone: several transfers may ask for the first key at once.
        descriptor, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        temporary = Path(name)
        with open(descriptor, "wb") as file:
            file.write(secret)
        try:
            # Never in the place of a key that another program has just made.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, self.path)
                self.path.with_suffix(".pub").write_bytes(public + b"\n")
                logger.warning("Your new public key is: %s", public.decode())
        finally:
            temporary.unlink()
