"""The command line: one module per command, imported only when that command is asked for.

`main` is the entry point of the `trio-ollama` script. The commands speak only Ollama's public HTTP API (`serve` alone
reaches into the daemon), so they work against any compatible server; `fit`, `cancel`, `show --memory`,
`ps --requests` and `stop --force` need one of ours.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any, Final

import click

__all__ = ["main"]

COMMANDS: Final = {
    "serve": "Start the server",
    "run": "Ask a model: one question, or a conversation",
    "pull": "Fetch a model from a registry",
    "push": "Send a model to a registry",
    "create": "Create a model from a Modelfile",
    "list": "List the models of the store",
    "show": "Show what is known about a model",
    "cp": "Copy a model",
    "rm": "Remove models",
    "ps": "List the models that are loaded",
    "fit": "Show where a model would be placed, and why",
    "stop": "Unload a model once its current requests are done",
    "cancel": "End a request",
    "completion": "Print what makes a shell complete these commands",
}
ALIASES: Final = {"start": "serve", "ls": "list"}
NOT_HERE: Final = {
    "signin": "no account is needed: models are served here only; a registry is told who pushes by the server's key",
    "signout": "no account is needed: nobody is signed in",
    "launch": "other programs are not started from here: start yours, and point it to the address of the server",
}
"""Commands of Ollama's that will not come, and what to do instead."""
NOT_HERE_EITHER: Final = {"login": "signin", "logout": "signout"}
INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 + SIGINT, as shells expect."""


class OneLineError(click.ClickException):
    """A mistake on the command line, with where to read how it is done."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        path = error.ctx.command_path if error.ctx is not None else "trio-ollama"
        super().__init__(f"{error.format_message().rstrip('.')} (see '{path} --help')")


class LazyGroup(click.Group):
    """Imports the module of the one command that runs: `--help` imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name == "help":
            return _help
        if reason := NOT_HERE.get(NOT_HERE_EITHER.get(name, name)):
            return _refusal(name, reason)
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"trio_ollama.cli.commands.{name}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"no command '{args[0]}'{_meant(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]

    def main(self, *args: Any, **extra: Any) -> Any:
        if "_TRIO_OLLAMA_COMPLETE" in os.environ:
            importlib.import_module("trio_ollama.cli.completion")  # bash is told how to
        return super().main(*args, **extra)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise OneLineError(error) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise OneLineError(error) from None
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)  # quietly: whoever pressed the key knows


def _meant(word: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, COMMANDS, n=2)
    return f"; did you mean {' or '.join(repr(each) for each in close)}?" if close else ""


def _refusal(name: str, reason: str) -> click.Command:
    def refuse() -> None:
        raise click.ClickException(f"'{name}' does not exist here: {reason}")

    loose = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
    return click.Command(name, callback=refuse, hidden=True, context_settings=loose, add_help_option=False)


def _show_help(words: Sequence[str]) -> None:
    main.main(args=[*words, "--help"], prog_name="trio-ollama")


_help = click.Command("help", callback=_show_help, params=[click.Argument(["words"], nargs=-1)], hidden=True)


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from trio_ollama.cli.versions import versions

        click.echo(versions(), nl=False)
        ctx.exit()


@click.group(
    "trio-ollama",
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="'trio-ollama COMMAND --help' tells more. OLLAMA_HOST is the address of the server.",
)
@click.option(
    "-v",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the versions of the server and of this program.",
)
@click.option("--verbose", is_flag=True, expose_value=False, hidden=True)  # of Ollama's menu, which is not here
@click.option("--nowordwrap", is_flag=True, expose_value=False, hidden=True)
@click.pass_context
def main(ctx: click.Context) -> None:
    """An Ollama-compatible server for local language models, and its client."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
