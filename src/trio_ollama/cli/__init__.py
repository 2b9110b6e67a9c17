"""The command line: one module per command, imported only when that command is asked for.

`main` is the entry point of the `trio-ollama` script. The commands speak only Ollama's public HTTP API (`serve` alone
reaches into the daemon), so they work against any compatible server; `fit`, `cancel`, `show --memory`,
`ps --requests` and `stop --force` need one of ours.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

import click

from trio_ollama import OLLAMA_API_VERSION, __version__

__all__ = ["main"]

COMMANDS: Final = {
    "serve": "Start the server",
    "run": "Ask a model: one question, or a conversation",
    "ps": "List the models that are loaded",
    "list": "List the models of the store",
    "show": "Show what is known about a model",
    "fit": "Show where a model would be placed, and why",
    "stop": "Unload a model once its current requests are done",
    "cancel": "End a request",
    "pull": "Fetch a model from a registry",
    "create": "Create a model from a Modelfile",
    "cp": "Copy a model",
    "rm": "Remove models",
}
ALIASES: Final = {"start": "serve", "ls": "list"}
INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as shells expect."""


class LazyGroup(click.Group):
    """Imports the module of the one command that runs: `--version` and `--help` import none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"trio_ollama.cli.commands.{name}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)  # quietly: whoever pressed the key knows


@click.group("trio-ollama", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__,
    "-v",
    "--version",
    message=f"trio-ollama version is {__version__}\nOllama API version is {OLLAMA_API_VERSION}",
)
def main() -> None:
    """An Ollama-compatible server for local language models, and its client."""
