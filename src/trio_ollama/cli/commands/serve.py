"""`trio-ollama serve`: the daemon. The only command that is not a client."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from trio_ollama.cli.options import write_variables

__all__ = ["command"]


class ServeCommand(click.Command):
    """Adds the table of variables to its help: they are the daemon's configuration."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from trio_ollama.settings import VARIABLES

        write_variables(formatter, (each.name for each in VARIABLES))
        super().format_epilog(ctx, formatter)


@click.command(
    name="serve",
    cls=ServeCommand,
    epilog="Registries are reached through the proxies of HTTP_PROXY, HTTPS_PROXY and NO_PROXY. SSL_CERT_FILE is a "
    "file with the certificates of the authorities to trust, instead of the machine's.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append a line for each request to FILE, without its texts: times, sizes and outcomes, to plan with.",
)
def command(record: Path | None) -> None:
    """Start the server and serve until SIGINT or SIGTERM: the first drains, the second leaves at once."""
    from trio_ollama.server import daemon
    from trio_ollama.settings import Settings, SettingsError

    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        raise click.ClickException(str(error)) from None
    sys.exit(daemon.main(settings, record))
