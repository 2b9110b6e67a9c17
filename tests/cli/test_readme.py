"""The README keeps up with the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trio_ollama.cli import COMMANDS
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
