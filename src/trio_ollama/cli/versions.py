"""What `trio-ollama --version` says: of the server that answers, and of this program."""

from __future__ import annotations

from trio_ollama import OLLAMA_API_VERSION, __version__
from trio_ollama.cli.client import Client, ClientError

__all__ = ["versions"]

PATIENCE = 2.0
"""Seconds for the server to answer."""


def versions() -> str:
    """One line of the server's version, and one for whatever is remarkable. Raises nothing."""
    try:
        answer = Client.from_environment(patience=PATIENCE).call("GET", "/api/version")
    except ClientError:
        answer = {}
    ours = _both(OLLAMA_API_VERSION, __version__)
    server = _both(answer.get("version"), answer.get("trio_ollama")) if answer.get("version") else ""
    lines = [f"ollama version is {server}" if server else "Warning: could not connect to a running Ollama instance"]
    if server != ours:
        lines.append(f"Warning: client version is {ours}")
    return "".join(f"{line}\n" for line in lines)


def _both(api: object, trio_ollama: object) -> str:
    return f"{api} (trio-ollama {trio_ollama})" if trio_ollama else str(api)
