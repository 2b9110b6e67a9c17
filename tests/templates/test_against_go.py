"""The engine beside Go's own text/template, on the table of rules and on templates made by chance."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from trio_ollama.templates import Template, TemplateError

from .test_engine import RENDERED, VALUES

Oracle = Callable[[Sequence[str]], list[dict[str, str]]]

STRICTER: Final = ("nil alone", "printf with", "complex numbers")
"""What Go accepts, or says only when it comes to that place, and this engine refuses."""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no Go compiler on PATH")
    program = tmp_path_factory.mktemp("oracle") / "oracle"
    source = Path(__file__).parent / "oracle" / "main.go"
    subprocess.run([go, "build", "-o", program, source], check=True, capture_output=True)

    def ask(templates: Sequence[str]) -> list[dict[str, str]]:
        lines = [json.dumps({"template": template, "values": VALUES}) for template in templates]
        done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


def ours(text: str) -> dict[str, str]:
    try:
        template = Template.parse(text)
    except TemplateError as error:
        return {"stage": "parse", "error": str(error)}
    try:
        return {"output": template.render(VALUES)}
    except TemplateError as error:
        return {"stage": "execute", "error": str(error)}


@pytest.mark.timeout(300)
def test_the_table_of_rules_is_what_go_does(oracle: Oracle) -> None:
    answers = oracle([text for text, _ in RENDERED])
    assert [answer.get("output", answer) for answer in answers] == [expected for _, expected in RENDERED]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("damaged", [False, True])
def test_templates_made_by_chance_give_the_same_as_with_go(oracle: Oracle, damaged: bool) -> None:
    chance = Chance(7)
    templates = [chance.template() for _ in range(1500)]
    if damaged:
        templates = [chance.damaged(text) for text in templates]
    wrong: list[Any] = []
    alike = 0
    for text, theirs in zip(templates, oracle(templates), strict=True):
        mine = ours(text)
        if any(reason in mine.get("error", "") for reason in STRICTER):
            continue
        if mine.get("output") != theirs.get("output"):
            wrong.append((text, theirs, mine))
        alike += "output" in theirs
    assert not wrong
    assert alike > 400  # or they test nothing


class Chance:
    """Templates that are mostly valid, over the values of the table."""

    OPERANDS: Final = (
        *(".", "$", ".s", ".n", ".f", ".L", ".M", ".E", ".t", ".x", ".M.a", ".M.z", ".R", "$x", "$x.r", ".r", ".c"),
        *("1", "2", "0", "-1", "1.5", "`r`", "'a'", "nil", "true", "false", "1e6", "0x1F", '"a"', '"x\\n"'),
        *("(index .L 1)", "(len .s)", "(.M).b", "($).n", "(index .R 0).c"),
    )
    FUNCTIONS: Final = (
        *["and", "or", "not", "eq", "ne", "lt", "le", "gt", "ge", "len", "index", "slice", "print", "println", "json"],
        *('printf "%v|%s"', 'printf "%d"', 'printf "%5q"'),
    )
    TEXTS: Final = ("", " ", "\n", "x", "  a \n", "\t b", "}}", "-", "if", "end")
    WHOLE: Final = (
        *("{{/* c */}}", "{{- /* c */ -}}", "{{break}}", "{{continue}}", "{{- end}}", '{{template "d" .M}}'),
        *('{{template "d"}}', '{{define "d"}}<{{.}}>{{end}}', '{{block "e" .L}}{{len .}}{{end}}'),
    )

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def some(self, *choices: str) -> str:
        return self.random.choice(choices)

    def likely(self, share: float) -> bool:
        return self.random.random() < share

    def template(self) -> str:
        return self.some("", "{{$x := 5}}") + self.nodes(3)

    def nodes(self, depth: int) -> str:
        return "".join(self.node(depth) for _ in range(self.random.randint(0, 3)))

    def node(self, depth: int) -> str:
        if self.likely(0.35):
            return self.some(*self.TEXTS)
        if depth <= 0 or self.likely(0.45):
            declaration = self.some("", "", "", "", "$x := ", "$x = ", "$y := ", "$x, $y := ")
            return self.action(declaration + self.pipeline(1))
        return self.some(*self.WHOLE) if self.likely(0.1) else self.branch(depth)

    def branch(self, depth: int) -> str:
        kind = self.some("if", "with", "range")
        declaration = self.some("", "", "$x := ", "$x = ", "$i, $x := " if kind == "range" else "")
        text = self.action(f"{kind} {declaration}{self.pipeline(1)}") + self.nodes(depth - 1)
        if self.likely(0.3):
            word = self.some("else", "else", f"else if {self.pipeline(0)}", f"else with {self.pipeline(0)}")
            text += self.action(word) + self.nodes(depth - 1)
        return text + self.action("end")

    def action(self, inner: str) -> str:
        return self.some("{{", "{{", "{{- ", "{{ ") + inner + self.some("}}", "}}", " -}}", " }}")

    def pipeline(self, depth: int) -> str:
        text = self.command(depth)
        while self.likely(0.15):
            text += self.some(" | ", "|") + self.some(*self.FUNCTIONS) + self.some("", f" {self.operand(depth)}")
        return text

    def command(self, depth: int) -> str:
        if self.likely(0.5):
            return self.operand(depth)
        arguments = (f" {self.operand(depth)}" for _ in range(self.random.choice((0, 1, 1, 2, 2, 3))))
        return self.some(*self.FUNCTIONS) + "".join(arguments)

    def operand(self, depth: int) -> str:
        return f"({self.pipeline(depth - 1)})" if depth and self.likely(0.2) else self.some(*self.OPERANDS)

    def damaged(self, text: str) -> str:
        for _ in range(self.random.randint(1, 2)):
            at = self.random.randint(0, len(text))
            text = text[:at] + self.some("", *"{}-. \"'`$()|:=,/*ax1\n") + text[at + self.random.randint(0, 1) :]
        return text
