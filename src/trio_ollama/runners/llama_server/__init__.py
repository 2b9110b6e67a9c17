"""Runners whose child is llama.cpp's own server: embedded (`xllamacpp`) or an external `llama-server` binary."""

from trio_ollama.runners.llama_server.factory import LlamaServerFactory, runner_factory
from trio_ollama.runners.llama_server.runner import LlamaServerRunner

__all__ = ["LlamaServerFactory", "LlamaServerRunner", "runner_factory"]
