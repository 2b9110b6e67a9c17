"""An Ollama-compatible server for local language models in which cancellation is correct."""

__version__ = "0.1.0"

OLLAMA_API_VERSION = "0.33.0"
"""Level of Ollama's API that this server implements; clients gate features on it."""

__all__ = ["OLLAMA_API_VERSION", "__version__"]
