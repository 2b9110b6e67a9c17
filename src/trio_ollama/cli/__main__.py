"""`python -m trio_ollama.cli`: the same as the `trio-ollama` script."""

from trio_ollama.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main(prog_name="trio-ollama")
