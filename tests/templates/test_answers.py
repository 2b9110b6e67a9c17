"""Thinking and tool calls in answers that arrive in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_ollama.templates import Tags, ThinkingSplitter, ToolCallParser
from trio_ollama.templates.tool_calls import MAX_CALLS_TEXT

TAGS = Tags("<think>", "</think>")
TOOLS = ("get", "get_weather", "say", "say-it")


def split(pieces: Iterable[str], *, inside: bool = False) -> tuple[str, str]:
    splitter = ThinkingSplitter(TAGS, inside=inside)
    splits = [*map(splitter.feed, pieces), splitter.finish()]
    return "".join(part.thinking for part in splits), "".join(part.content for part in splits)


def calls(pieces: Iterable[str], tag: str = "<call>") -> tuple[str, list[tuple[int, str, Any]]]:
    parser = ToolCallParser(tag, TOOLS)
    found = [*map(parser.feed, pieces), parser.finish()]
    return (
        "".join(part.content for part in found),
        [(call.index, call.name, call.arguments) for part in found for call in part.calls],
    )


@pytest.mark.parametrize(
    ("answer", "thinking", "content"),
    [
        ("<think>a</think>b", "a", "b"),
        (" \n<think>\n a \n</think>\n\n b ", "a \n", "b "),
        ("<think></think>b", "", "b"),
        ("<think> </think>", "", ""),
        ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        ("<think>a</thin</think>b", "a</thin", "b"),
        ("<think>a</", "a</", ""),
        ("<think>a", "a", ""),
        ("b", "", "b"),
        (" b<think>a</think>", "", " b<think>a</think>"),
        ("<thi", "", "<thi"),
        ("<thin>", "", "<thin>"),
        ("\n ", "", "\n "),
        ("", "", ""),
        ("</think>b", "", "</think>b"),
    ],
)
def test_thinking_and_content(answer: str, thinking: str, content: str) -> None:
    assert split([answer]) == (thinking, content)
    assert split(answer) == (thinking, content)


@pytest.mark.parametrize(
    ("answer", "thinking", "content"),
    [
        ("\na</think>\nb", "a", "b"),
        ("a", "a", ""),
        ("</think>b", "", "b"),
        ("<think>a</think>b", "<think>a", "b"),
    ],
)
def test_an_answer_that_begins_inside_of_thinking(answer: str, thinking: str, content: str) -> None:
    assert split([answer], inside=True) == (thinking, content)
    assert split(answer, inside=True) == (thinking, content)


def test_thinking_is_told_as_soon_as_it_is_sure() -> None:
    splitter = ThinkingSplitter(TAGS)
    told = [splitter.feed(piece) for piece in ("<thi", "nk>", " a", "b <", "/x", "y</thi", "nk>", "\n", "c ", "d")]
    assert told == [
        ("", ""),
        ("", ""),
        ("a", ""),
        ("b ", ""),
        ("</x", ""),
        ("y", ""),
        ("", ""),
        ("", ""),
        ("", "c "),
        ("", "d"),
    ]
    assert splitter.finish() == ("", "")


CALL = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
ROME = {"city": "Rome"}
ONCE = [(0, "get_weather", ROME)]
TWICE = [*ONCE, (1, "get_weather", ROME)]


@pytest.mark.parametrize(
    ("answer", "content", "found"),
    [
        (f"<call>{CALL}</call>", "", ONCE),
        (f"Look: <call>\n{CALL}\n</call>\n<call>{CALL}</call> bye", "Look: ", TWICE),
        ('<call>{"parameters": {"city": "Rome"}, "name": "get_weather"}', "", ONCE),
        ('<call>{"name": "say", "arguments": "{\\"text\\": \\"}{\\"}"}', "", [(0, "say", {"text": "}{"})]),
        ('<call>{"function": {"name": "say", "arguments": {"a": [{"b": 2}]}}}', "", [(0, "say", {"a": [{"b": 2}]})]),
        ('<call>get_weather{"city": "Rome"}', "", ONCE),
        ('<call>say [ARGS] {"get": 1} get {"a": 2}', "", [(0, "say", {"get": 1}), (1, "get", {"a": 2})]),
        ('<call>{"name": "say"}', "", [(0, "say", {})]),
        ('<call>{"name": "say", "arguments": {}}', "", [(0, "say", {})]),
        ('<call>{"name": "say", "arguments": {"a": "get \\" \\\\"}}', "", [(0, "say", {"a": 'get " \\'})]),
        # The first known name there is, and of two at one place the longer one.
        ('<call>{"tool": "get_weather", "arguments": {"x": "say"}}', "", [(0, "get_weather", {"x": "say"})]),
        ('<call>{"tool": "get", "arguments": {}}', "", [(0, "get", {})]),
        ('<call>say-it{"a": 1}', "", [(0, "say-it", {"a": 1})]),
        # What calls nothing is content in the end, unless something else is called.
        ("no call", "no call", []),
        ("a <cal b", "a <cal b", []),
        ("a <call", "a <call", []),
        ("a <call>b", "a <call>b", []),
        ('<call>{"name": "unknown", "arguments": {}}</call>', '<call>{"name": "unknown", "arguments": {}}</call>', []),
        ('<call>{"name": "getter", "arguments": {}}', '<call>{"name": "getter", "arguments": {}}', []),
        ("<call>say {no json} x", "<call>say {no json} x", []),
        ('<call>{"name": "say", "arguments": {"a"', '<call>{"name": "say", "arguments": {"a"', []),
        (f'<call>{{"name": "unknown"}}</call><call>{CALL}</call>', "", ONCE),
    ],
)
def test_calls_after_a_tag(answer: str, content: str, found: list[Any]) -> None:
    assert calls([answer]) == (content, found)
    assert calls(answer) == (content, found)


@pytest.mark.parametrize(
    ("tag", "answer", "content", "found"),
    [
        ("{", CALL, "", ONCE),
        ("{", f"\n {CALL}\n{CALL}", "\n ", TWICE),
        ("{", f"Here: {CALL}", f"Here: {CALL}", []),
        ("{", '{"answer": {"a": 1}} and more {"name": "say"}', '{"answer": {"a": 1}} and more {"name": "say"}', []),
        ("{", '{"name": ', '{"name": ', []),
        ("[", f"[{CALL}, {CALL}]", "", TWICE),
        ("[", f'[{{"name": "unknown"}}, {CALL}]', "", ONCE),
        ("[", '[1, "]", [2]] and', '[1, "]", [2]] and', []),
        ("[", f"[1] {CALL}", f"[1] {CALL}", []),
        ("[", f"{CALL}", f"{CALL}", []),
    ],
)
def test_calls_without_a_tag(tag: str, answer: str, content: str, found: list[Any]) -> None:
    assert calls([answer], tag) == (content, found)
    assert calls(answer, tag) == (content, found)


def test_content_and_calls_are_told_as_soon_as_they_are_sure() -> None:
    parser = ToolCallParser("<call>", TOOLS)
    told = [parser.feed(piece) for piece in ("Hi ", "<", "b <ca", "ll>", CALL[:20], CALL[20:] + "\n", CALL)]
    assert [part.content for part in told] == ["Hi ", "", "<b ", "", "", "", ""]
    assert [len(part.calls) for part in told] == [0, 0, 0, 0, 0, 1, 1]
    disabled = ToolCallParser("{", TOOLS)
    assert [disabled.feed(piece).content for piece in ("a", "{", "}")] == ["a", "{", "}"]


def test_text_that_never_becomes_a_call_is_not_held_for_ever() -> None:
    parser = ToolCallParser("<call>", TOOLS)
    assert parser.feed("<call>" + "x" * (MAX_CALLS_TEXT - 6)).content == ""
    assert len(parser.feed("y").content) == MAX_CALLS_TEXT + 1
    assert parser.feed("z").content == "z"


def test_without_tools_nothing_is_a_call() -> None:
    parser = ToolCallParser("<call>", ())
    assert (parser.feed(f"<call>{CALL}"), parser.finish().content) == (("", ()), f"<call>{CALL}")


SCRAPS = st.lists(
    st.sampled_from(
        [
            *(
                "<think>",
                "</think>",
                "<thi",
                "nk>",
                "</",
                "<",
                ">",
                " ",
                "\n",
                "a",
                "é",
                "<call>",
                "<ca",
                "ll>",
                "</call>",
            ),
            *("{", "}", "[", "]", '"', "\\", ",", CALL, '{"name": "say"}', '"name": "get"', "get_weather", "say", "{}"),
        ]
    ),
    max_size=14,
).map("".join)


def cut(text: str, places: Sequence[int]) -> list[str]:
    at = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]


@given(SCRAPS, st.lists(st.integers(0, 300), max_size=8), st.booleans())
def test_how_an_answer_is_cut_makes_no_difference_to_thinking(text: str, places: list[int], inside: bool) -> None:
    assert split(cut(text, places), inside=inside) == split([text], inside=inside)


@given(SCRAPS, st.lists(st.integers(0, 300), max_size=8), st.sampled_from(["<call>", "{", "[", "[TOOL_CALLS]"]))
def test_how_an_answer_is_cut_makes_no_difference_to_calls(text: str, places: list[int], tag: str) -> None:
    whole = calls([text], tag)
    assert calls(cut(text, places), tag) == whole
    content, found = whole
    if not found:
        assert content == text


NAMES = st.sampled_from(TOOLS)
ARGUMENTS = st.dictionaries(
    st.text(max_size=5), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=4)
)


@given(st.text("ab <\n", max_size=10), st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3), st.integers(1, 9))
def test_every_call_a_model_writes_is_found(before: str, made: list[tuple[str, Any]], size: int) -> None:
    text = before + "".join(
        f"<call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</call>\n" for name, arguments in made
    )
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    content, found = calls(pieces)
    assert content == before
    assert [(name, arguments) for _, name, arguments in found] == made
