"""A model store as Ollama leaves it on disk, written without any code of ours."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["OllamaStore"]

_TYPE = "application/vnd.ollama.image."


class OllamaStore:
    """Writes blobs and manifests the way Ollama does: Go's compact JSON with a final newline, `from` only if set."""

    def __init__(self, root: Path) -> None:
        """Write into `root`, which may hold a store already."""
        self.root = root
        self.blobs = root / "blobs"
        self.manifests = root / "manifests"
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.manifests.mkdir(exist_ok=True)

    def blob(self, data: bytes) -> str:
        """Write a blob; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        (self.blobs / f"sha256-{digest}").write_bytes(data)
        return f"sha256:{digest}"

    def layer(self, kind: str, data: bytes, **extra: str) -> dict[str, Any]:
        """Write a blob; returns its entry for a manifest."""
        media_type = kind if "/" in kind else _TYPE + kind
        return {"mediaType": media_type, "digest": self.blob(data), "size": len(data), **extra}

    def manifest_path(self, name: str) -> Path:
        """Where `[host/namespace/]model:tag` has its manifest."""
        path, tag = name.rsplit(":", 1)
        parts = path.split("/")
        defaults = ["registry.ollama.ai", "library"]
        return self.manifests.joinpath(*defaults[: 3 - len(parts)], *parts, tag)

    def add(
        self,
        name: str,
        weights: bytes | None = b"GGUF",
        *,
        config: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        layers: Sequence[dict[str, Any]] = (),
        **texts: str,
    ) -> bytes:
        """Write a model with these layers and texts (`template`, `system`, `license`); returns the manifest's bytes."""
        everything = [self.layer("model", weights)] if weights is not None else []
        everything += layers
        everything += [self.layer(kind, text.encode()) for kind, text in texts.items()]
        if params is not None:
            everything.append(self.layer("params", go_json(params)))
        if messages is not None:
            everything.append(self.layer("messages", go_json(messages)))
        described = {
            "model_format": "gguf",
            "model_family": "llama",
            "model_families": ["llama"],
            "model_type": "134.52M",
            "file_type": "Q4_K_M",
            "architecture": "amd64",
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in everything]},
            **(config or {}),
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
            "config": self.layer("application/vnd.docker.container.image.v1+json", go_json(described)),
            "layers": everything,
        }
        path = self.manifest_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = go_json(manifest)
        path.write_bytes(data)
        return data

    def files(self) -> dict[str, bytes]:
        """Everything in the store, to see that nothing was lost."""
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self.root.rglob("*") if path.is_file()}


def go_json(value: object) -> bytes:
    """JSON as Go's encoder writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
