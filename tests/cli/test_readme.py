"""The README and the page on the command line keep up with the program."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from trio_ollama.cli import COMMANDS, main
from trio_ollama.settings import VARIABLES

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def readme() -> str:
    return README.read_text()


def test_every_variable_is_in_the_table_with_its_default_and_no_other(readme: str) -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| `?([^|`]+?)`? \| (.+) \|$", readme, re.MULTILINE)
    assert rows == [(variable.name, variable.default, variable.help) for variable in VARIABLES]


def test_the_two_commands_are_lines_of_their_own(readme: str) -> None:
    environment = "python3 -m venv .venv && .venv/bin/pip install -q tox && .venv/bin/tox"
    assert f"\n{environment} -e demo\n" in readme
    assert f"\n{environment}\n" in readme


def test_every_command_is_mentioned(readme: str) -> None:
    for name in COMMANDS:
        assert f"`{name}`" in readme


def test_the_page_on_the_command_line_has_every_command_and_option() -> None:
    page = (README.parent / "docs" / "cli.md").read_text()
    rows = re.findall(r"^\| ?(`[^|]*|) \| (.*) \|$", page, re.MULTILINE)
    texts: dict[str, str] = {}
    name = ""
    for first, text in rows:
        name = first.strip("`").split(" ")[0].split("`")[0] if first else name
        texts[name] = texts.get(name, "") + first + text
    assert set(COMMANDS) <= set(texts)
    for command in COMMANDS:
        found = main.get_command(click.Context(main), command)
        assert found is not None
        for parameter in found.params:
            if isinstance(parameter, click.Option):
                for option in [*parameter.opts, *parameter.secondary_opts]:
                    assert re.search(rf"(?<![\w-]){option}(?![\w-])", texts[command]), f"{command} {option}"
