"""Models for tests with real runners: one that calls a tool, one that thinks aloud, one that never stops."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.support.scripted_gguf import tool_call, write_scripted_gguf
from tests.support.store_fixture import OllamaStore
from tests.support.tiny_gguf import write_tiny_gguf

__all__ = ["add_scripted_models"]


def add_scripted_models(store: Path) -> None:
    """Add `caller`, `thinker` and `endless` to a store."""
    into = OllamaStore(store)
    with tempfile.TemporaryDirectory() as folder:
        call = tool_call("add", '{"a": 1, "b": 2}')
        caller = write_scripted_gguf(Path(folder, "caller.gguf"), ["Let me", " see.", call])
        thoughts = ["<think>", "\nhm", " so", "\n</think>", "\n\nyes", "."]
        thinker = write_scripted_gguf(Path(folder, "thinker.gguf"), thoughts)
        endless = write_tiny_gguf(Path(folder, "endless.gguf"), name="endless", seed=4, context=32_768)
        for path in (caller, thinker, endless):
            # One thread: several would spin while they wait for each other.
            into.add(f"{path.stem}:latest", path.read_bytes(), params={"num_thread": 1})
