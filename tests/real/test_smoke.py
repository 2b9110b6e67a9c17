"""The shortest way through the whole house."""

from __future__ import annotations

from collections.abc import Callable

import ollama

from tests.support.real_daemon import RealDaemon

from .conftest import StartDaemon


def test_a_cold_model_answers_a_chat(
    start_daemon: StartDaemon, ollama_client: Callable[[RealDaemon], ollama.Client]
) -> None:
    client = ollama_client(start_daemon())
    answer = client.chat("tiny", [{"role": "user", "content": "hello"}], options={"num_predict": 8})
    assert answer.message.content
    assert answer.eval_count == 8
    assert [model.model for model in client.ps().models] == ["tiny:latest"]
