"""Files on their way into a server's store: named, hashed, sent once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from trio_ollama.cli.client import Client, ClientError
from trio_ollama.cli.progress import Show

__all__ = ["names_of", "upload"]

BLOCK = 1024 * 1024


def names_of(files: Iterable[Path]) -> dict[str, Path]:
    """What the server is to call the files: paths below the folder they share, with slashes."""
    absolute = {Path(os.path.abspath(file)): file for file in files}  # links keep their own names
    if not absolute:
        return {}
    shared = os.path.commonpath([path.parent for path in absolute])
    return {path.relative_to(shared).as_posix(): file for path, file in absolute.items()}


def upload(client: Client, file: Path, show: Show) -> str:
    """Send the file unless the server has its bytes already; returns its digest, `sha256:<64 hex>`.

    `show` is told how far it is.
    Raises ClientError, also when the file cannot be read or changes in between.
    """
    try:
        size = file.stat().st_size
        digest = f"sha256:{_hashed(file, size, show)}"
        path = f"/api/blobs/{digest}"
        if not client.exists(path):
            client.upload(path, _blocks(file, size, f"uploading {file.name}", show), size)
    except OSError as error:  # those of the connection have become ClientErrors
        raise ClientError(f"{file}: {error.strerror or error}") from None
    return digest


def _hashed(file: Path, size: int, show: Show) -> str:
    digest = hashlib.sha256()
    for block in _blocks(file, size, f"hashing {file.name}", show):
        digest.update(block)
    return digest.hexdigest()


def _blocks(file: Path, size: int, status: str, show: Show) -> Iterator[bytes]:
    sent = 0
    show({"status": status, "total": size})
    with file.open("rb") as source:
        while block := source.read(BLOCK):
            sent += len(block)
            if sent > size:
                break
            yield block
            show({"status": status, "total": size, "completed": sent})
    if sent != size:
        # Neither may the server wait for bytes that never come, nor take the rest for another request.
        raise ClientError(f"{file} changed while it was read")
