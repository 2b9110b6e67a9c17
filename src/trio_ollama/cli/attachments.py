"""Pictures and sounds that a message names by their paths."""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Final

import click

from trio_ollama.cli.client import ClientError
from trio_ollama.cli.format import size

__all__ = ["LARGEST", "attach"]

LARGEST: Final = 100_000_000
"""Bytes of one file."""

_ENDING: Final = r"\.(?:jpe?g|png|webp|wav)"
_PATH: Final = re.compile(
    rf"""(?P<quote>['"])(?P<quoted>[^'"\n]+{_ENDING})(?P=quote)"""
    rf"""|(?<![^\s(\[<])(?![(\[<])(?P<bare>(?:\\.|[^\s\\'"])+?{_ENDING})(?!\w)""",
    re.IGNORECASE,
)
"""A path in quotes, or a bare one, in which `\\` takes the special meaning from a blank, as terminals write files
that are dropped on them."""
_MEANT: Final = ("/", "./", "../", "~")
"""What begins so is meant as a path, be it there or not."""


def attach(text: str) -> tuple[str, list[str]]:
    """The text without the paths of pictures and sounds that are there, and what is in these files, in base64.

    Says on stderr what it takes. Raises ClientError for a file that cannot be read or is something else.
    """
    files: list[str] = []

    def take(found: re.Match[str]) -> str:
        name = found["quoted"] or re.sub(r"\\(.)", r"\1", found["bare"])
        path = Path(os.path.expanduser(name))
        if not _is_file(path):
            if name.startswith(_MEANT):
                click.echo(f"There is no file '{name}': it stays in the text.", err=True)
            return found[0]
        kind, data = _read(path, name)
        files.append(base64.b64encode(data).decode())
        click.echo(f"Added {kind} '{name}'", err=True)
        return ""

    rest = _PATH.sub(take, text)
    return (rest.strip() if files else text), files


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no name that a file can have
        return False


def _read(path: Path, name: str) -> tuple[str, bytes]:
    """`image` or `audio`, and the bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ClientError(f"{name}: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise ClientError(f"{name} is too large: at most {size(LARGEST)} can be sent along")
    if data.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or _riff(data) == b"WEBP":
        return "image", data
    if _riff(data) == b"WAVE":
        return "audio", data
    raise ClientError(f"{name} holds neither a JPEG, PNG or WebP image nor a WAV sound")


def _riff(data: bytes) -> bytes:
    return data[8:12] if data.startswith(b"RIFF") else b""
