"""Where a model lies at its registry."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from trio_ollama.models.digest import Digest
from trio_ollama.models.names import ModelName

__all__ = ["Reference", "origin"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A name and how its host is spoken to; makes all URLs of the protocol."""

    name: ModelName
    insecure: bool = False
    """Plain HTTP. A registry on this machine is always spoken to so: nobody is in between."""

    @property
    def local(self) -> bool:
        """Whether the registry runs on this machine."""
        host = urlsplit(f"//{self.name.host}").hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    @property
    def base(self) -> str:
        """`scheme://host`."""
        return f"{'http' if self.insecure or self.local else 'https'}://{self.name.host}"

    @property
    def repository(self) -> str:
        """`namespace/model`, as registries call it."""
        return f"{self.name.namespace}/{self.name.model}"

    @property
    def manifest(self) -> str:
        """URL of the manifest."""
        return f"{self.base}/v2/{self.repository}/manifests/{self.name.tag}"

    @property
    def uploads(self) -> str:
        """URL at which uploads of blobs begin."""
        return f"{self.base}/v2/{self.repository}/blobs/uploads/"

    def blob(self, digest: Digest) -> str:
        """URL of a blob."""
        return f"{self.base}/v2/{self.repository}/blobs/{digest}"

    def owns(self, url: str) -> bool:
        """Whether a URL is the registry's own: no other may see what signs us in."""
        return origin(url) == origin(self.base)


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what two URLs of one server share. Raises ValueError for what is no URL."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").lower(), port
