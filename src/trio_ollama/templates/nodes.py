"""What a parsed template is made of. All of it is immutable; a list of nodes is a tuple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "Action",
    "Branch",
    "Chain",
    "Command",
    "Constant",
    "Dot",
    "Field",
    "Function",
    "Jump",
    "Nil",
    "Node",
    "Nodes",
    "Operand",
    "Pipeline",
    "TemplateCall",
    "Text",
    "Variable",
]


@dataclass(frozen=True, slots=True)
class Dot:
    """`.`"""


@dataclass(frozen=True, slots=True)
class Nil:
    """`nil`"""


@dataclass(frozen=True, slots=True)
class Constant:
    """A string, number, character or truth value."""

    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class Field:
    """`.Function.Name`: names, outermost first."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """`$message.Role`: the name with its dollar, then fields."""

    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """`(pipeline).Field`"""

    base: Pipeline
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """A function's name; the other operands of its command are the arguments."""

    name: str


@dataclass(frozen=True, slots=True)
class Command:
    """One stage of a pipeline."""

    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`$x := a | b`: each stage's value is the next one's last argument."""

    commands: tuple[Command, ...]
    line: int
    variables: tuple[str, ...] = ()
    assigns: bool = False
    """`=` instead of `:=`."""


Operand: TypeAlias = Dot | Nil | Constant | Field | Variable | Chain | Function | Pipeline


@dataclass(frozen=True, slots=True)
class Text:
    """Goes to the output as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """`{{ pipeline }}`: its value is printed, unless it sets a variable."""

    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`, `with` or `range`, with its `else`."""

    kind: Literal["if", "with", "range"]
    pipeline: Pipeline
    body: Nodes
    otherwise: Nodes = ()


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """`{{ template "name" pipeline }}`, and what `block` leaves in its place."""

    name: str
    pipeline: Pipeline | None
    line: int


@dataclass(frozen=True, slots=True)
class Jump:
    """`break` or `continue`."""

    kind: Literal["break", "continue"]


Node: TypeAlias = Text | Action | Branch | TemplateCall | Jump
Nodes: TypeAlias = tuple[Node, ...]
