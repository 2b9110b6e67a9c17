"""`serve`: what it says at its start. Why it does not start: `tests/real/test_start.py`."""

from __future__ import annotations

from pathlib import Path

from tests.support.real_daemon import RealDaemon
from trio_ollama import OLLAMA_API_VERSION, __version__


def test_it_says_where_it_listens_which_store_which_runner_and_which_devices(tmp_path: Path) -> None:
    with RealDaemon(tmp_path / "store", OLLAMA_DEBUG="", TRIO_OLLAMA_RUNNER="embedded") as daemon:
        lines = daemon.log.splitlines()
        begin = lines.index(f"trio-ollama {__version__} (Ollama API {OLLAMA_API_VERSION})")
        title, listening, store, runner, *devices = lines[begin:]
        assert title
        assert listening == f"  listening on {daemon.url} (for this machine only; OLLAMA_HOST)"
        assert store == f"  models in {tmp_path / 'store'} (OLLAMA_MODELS)"
        assert runner.startswith("  runner: embedded llama.cpp")
        assert devices
        assert any("system memory: " in line for line in devices)
        assert "\x1b" not in daemon.log
