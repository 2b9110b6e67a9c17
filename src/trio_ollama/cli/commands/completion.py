"""`trio-ollama completion SHELL`: the script that makes a shell complete our commands."""

from __future__ import annotations

import click

from trio_ollama.cli.completion import script

__all__ = ["command"]


@click.command(
    name="completion",
    epilog="""\b
For the shell that is running, and for every later one:
  bash: eval "$(trio-ollama completion bash)"; the same line in ~/.bashrc
  zsh:  eval "$(trio-ollama completion zsh)"; the same line in ~/.zshrc
  fish: trio-ollama completion fish > ~/.config/fish/completions/trio-ollama.fish
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and names of models."""
    click.echo(script(shell), nl=False)
