"""Formats of conversations that are known by the Jinja template in a model's file, written as Go templates.

Created models get the Go template as a layer, and the texts at which an answer ends as parameters, as Ollama's do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from trio_ollama.templates.modes import jinja_abilities

__all__ = ["FORMATS", "Format", "autodetect"]

NEAR: Final = 100
"""Edits between two templates that still mean the same format, as Ollama counts them."""

_FOR: Final = "{% for message in messages %}"
_PROMPT: Final = "{% endfor %}{% if add_generation_prompt %}"


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write a conversation down; what stands between the parts is the same for all roles."""

    name: str
    """Ollama's for it."""
    jinja: str
    before: str
    """In front of a role's name."""
    between: str
    """Between the role's name and the text."""
    after: str
    """Behind the text."""
    marks: tuple[str, str]
    """Without them it is another format, however near."""
    stop: tuple[str, ...]
    """Where an answer ends, at the latest."""
    assistant: str = "assistant"
    """What this role is called."""

    @property
    def template(self) -> str:
        """As a Go template."""
        role = "{{ .Role }}"
        if self.assistant != "assistant":
            role = f'{{{{ if eq .Role "assistant" }}}}{self.assistant}{{{{ else }}}}{role}{{{{ end }}}}'
        turn = f"{self.before}{role}{self.between}{{{{ .Content }}}}{self.after}"
        return f"{{{{ range .Messages }}}}{turn}{{{{ end }}}}{self.before}{self.assistant}{self.between}"


def _plain(before: str, between: str, after: str) -> str:
    """The Jinja template that says nothing else."""
    before, between, after = (text.replace("\n", "\\n") for text in (before, between, after))
    turn = f"{{{{ '{before}' + message['role'] + '{between}' + message['content'] + '{after}' }}}}"
    return f"{_FOR}{turn}{_PROMPT}{{{{ '{before}assistant{between}' }}}}{{% endif %}}"


FORMATS: Final = (
    Format(
        "chatml",
        _plain("<|im_start|>", "\n", "<|im_end|>\n"),
        "<|im_start|>",
        "\n",
        "<|im_end|>\n",
        ("<|im_start|>", "<|im_end|>"),
        ("<|im_start|>", "<|im_end|>"),
    ),
    Format(
        "llama3-instruct",
        "{{ bos_token }}" + _plain("<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"),
        "<|start_header_id|>",
        "<|end_header_id|>\n\n",
        "<|eot_id|>",
        ("<|start_header_id|>", "<|eot_id|>"),
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    ),
    Format(
        "phi-3",
        _plain("<|", "|>\n", "<|end|>\n"),
        "<|",
        "|>\n",
        "<|end|>\n",
        ("<|end|>", "<|assistant|>"),
        ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>"),
    ),
    Format(
        "gemma-instruct",
        "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{% set role = 'model' %}"
        "{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + "
        "message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<start_of_turn>model\\n' }}{% endif %}",
        "<start_of_turn>",
        "\n",
        "<end_of_turn>\n",
        ("<start_of_turn>", "<end_of_turn>"),
        ("<start_of_turn>", "<end_of_turn>"),
        "model",
    ),
)


@lru_cache(maxsize=16)
def autodetect(chat_template: str) -> Format | None:
    """The format that a Jinja template writes; None for one that is not known, or that can do more than write it."""
    if jinja_abilities(chat_template):
        return None
    for each in FORMATS:
        if all(mark in chat_template for mark in each.marks) and _distance(chat_template, each.jinja) < NEAR:
            return each
    return None


def _distance(one: str, other: str) -> int:
    """Levenshtein's, or `NEAR` for any that is at least as far."""
    if abs(len(one) - len(other)) >= NEAR:
        return NEAR
    last = list(range(len(other) + 1))
    for row, left in enumerate(one, start=1):
        now = [row]
        for column, right in enumerate(other):
            now.append(min(last[column] + (left != right), last[column + 1] + 1, now[column] + 1))
        if min(now) >= NEAR:
            return NEAR
        last = now
    return last[-1]
