"""What is read off a template, and who applies which."""

from __future__ import annotations

import pytest

from trio_ollama.templates import (
    Facts,
    GoTemplate,
    Native,
    Refused,
    Tags,
    Template,
    go_template,
    opens_thinking,
    prompt_mode,
)
from trio_ollama.templates.inspection import thinking_tags, tool_tag, variables
from trio_ollama.templates.known import builtin_template
from trio_ollama.templates.modes import jinja_abilities

from .test_prompt import CHATML, COMMAND_R, GEMMA, INSERT, LEGACY, LLAMA3, MISTRAL

ROUND_TRIP = "{% if tools %}{{ tools }}{% endif %}{{ message.tool_calls }}{% if message['role'] == 'tool' %}{% endif %}"
ONE_WAY = "{% if tools %}{{ tools }}{% endif %}"
THINKS = "<think>{{ message.reasoning_content }}</think>"
GO_ONE_WAY = "{{ range .Messages }}{{ .Content }}{{ end }}{{ .Tools }}"


def test_variables_are_found_wherever_they_stand() -> None:
    template = (
        '{{ $a := .One }}{{ if (eq $.Two "x") }}{{ else if .Three.Four }}{{ end }}{{ (index .Five 0).Six }}'
        '{{ $a.Seven }}{{ define "d" }}{{ .Eight | printf "%s" .Nine }}{{ end }}{{ template "d" .Ten }}'
        "{{ range .Eleven }}{{ else }}{{ .Twelve }}{{ end }}"
    )
    found = "one two three four five six seven eight nine ten eleven twelve"
    assert variables(Template.parse(template)) == set(found.split())


def in_messages(body: str) -> str:
    return f"{{{{ range .Messages }}}}{body}{{{{ end }}}}"


@pytest.mark.parametrize(
    ("template", "tags"),
    [
        (CHATML, Tags("<think>", "</think>")),
        (MISTRAL, None),
        (in_messages("a{{ if .Thinking }}\n<t>\n{{ .Thinking }}\n</t>\n{{ end }}b"), Tags("<t>", "</t>")),
        (
            "{{ range $i, $m := $.Messages }}{{ if $m.Thinking }}<t>{{ $m.Thinking }}</t>{{ end }}{{ end }}",
            Tags("<t>", "</t>"),
        ),
        (in_messages("x{{ with .Thinking }}<t>{{ . }}</t>{{ end }}y"), Tags("<t>", "</t>")),
        (
            in_messages("{{ if 0 }}<a>{{ .Thinking }}</a>{{ end }}{{ if 1 }}<b>{{ .Thinking }}</b>{{ end }}"),
            Tags("<b>", "</b>"),
        ),
        ("{{ range .Tools }}<t>{{ .Thinking }}</t>{{ end }}", None),
        # A condition tells nothing, and neither does a place outside of the messages, or with a blank at one end.
        (in_messages("a{{ if .Thinking }}{{ end }}b"), None),
        ("<t>{{ .Thinking }}</t>", None),
        (in_messages("{{ if .Thinking }}<t>{{ .Thinking }} {{ end }}"), None),
    ],
)
def test_tags_around_thinking(template: str, tags: Tags | None) -> None:
    assert thinking_tags(Template.parse(template)) == tags


def test_a_prompt_may_end_inside_of_thinking() -> None:
    tags = Tags("<think>", "</think>")
    assert opens_thinking("<|assistant|><think>\n", tags)
    assert not opens_thinking("<think></think>\n", tags)


@pytest.mark.parametrize(
    ("template", "tag"),
    [
        (MISTRAL, "[TOOL_CALLS]"),
        (LEGACY, "{"),
        (in_messages("{{ if .ToolCalls }}{{ range .ToolCalls }}<call>\r\n{{ . }}{{ end }}{{ end }}"), "<call>"),
        (in_messages('{{ if .Content }}x{{ else if .ToolCalls }}<f>\n{"name": {{ end }}'), "<f>"),
        (in_messages("{{ if .ToolCalls }}{{ .Content }}<f>{{ end }}"), "{"),
        (in_messages('{{ if .ToolCalls }}[{{ range .ToolCalls }}{"name":{{ end }}]{{ end }}'), "["),
        (in_messages('{{ if .ToolCalls }}{"name":{{ end }}'), "{"),
        (in_messages("{{ if .ToolCalls }}{{ $x := 1 }}{{ if $x }}{{ else }}<g>{{ end }}{{ end }}"), "<g>"),
    ],
)
def test_tag_before_tool_calls(template: str, tag: str) -> None:
    assert tool_tag(Template.parse(template)) == tag


@pytest.mark.parametrize(
    ("template", "capabilities"),
    [
        (CHATML, {"tools", "thinking"}),
        (INSERT, {"insert"}),
        (LEGACY, set()),
        (COMMAND_R, {"tools"}),
    ],
)
def test_capabilities_of_go_templates(template: str, capabilities: set[str]) -> None:
    assert go_template(template).capabilities == capabilities


@pytest.mark.parametrize(
    ("template", "abilities"),
    [
        (ROUND_TRIP, {"tools"}),
        ("{{ tool_call }}", {"tools"}),
        (THINKS, {"thinking"}),
        ("{{ content.split('</think>')[-1] }}", {"thinking"}),
        ('{{ content.split( "</think>" )[-1] }}', {"thinking"}),
        ("{{ content.split('</think>')[-1] }}{{ reasoning_content }}", set()),
        ("{{ content.split('</think>')[-1] }}<SPECIAL_12>", set()),
        ("<think>", set()),
    ],
)
def test_abilities_of_chat_templates(template: str, abilities: set[str]) -> None:
    assert jinja_abilities(template) == abilities


GO = go_template(GO_ONE_WAY)
PLAIN = "{{ messages }}"
NEEDS = "needs the built-in {}, which this server does not have, or a chat template"
UNUSABLE = "has a Go template that cannot be used: line 1: "


@pytest.mark.parametrize(
    ("facts", "setting", "expected"),
    [
        (Facts(chat_template=PLAIN), None, Native()),
        (Facts(chat_template=PLAIN), True, Native()),
        (Facts(go_template=GO_ONE_WAY), None, GO),
        (Facts(PLAIN, GO_ONE_WAY), None, Native()),
        (Facts(PLAIN, GO_ONE_WAY), True, GO),
        (Facts(PLAIN, GO_ONE_WAY), False, Native()),
        # Weights without a chat template: never the stored one means one of the runner's own, if it is known.
        (Facts(go_template=LLAMA3), False, Native("llama3")),
        (
            Facts(go_template=GO_ONE_WAY),
            False,
            Refused("has no chat template but the stored Go template, and OLLAMA_GO_TEMPLATE is false"),
        ),
        (Facts(), None, Refused("has no chat template, and none is stored with it")),
        # Built-in renderers of upstream.
        (Facts(PLAIN, GO_ONE_WAY, renderer="r", parser="p"), None, Native()),
        (Facts(PLAIN, GO_ONE_WAY, renderer="r"), True, GO),
        (
            Facts("", GO_ONE_WAY, renderer="r", parser="p"),
            None,
            Refused(NEEDS.format('renderer "r" and parser "p"')),
        ),
        (
            Facts("", "<|start|>{{ .Prompt }}<|end|>", families=["gptoss"]),
            None,
            Refused(NEEDS.format('parser "harmony"')),
        ),
        (Facts(PLAIN, "<|start|>{{ .Prompt }}<|end|>", families=["gptoss"]), None, Native()),
        # A template that cannot be used.
        (Facts("", "{{ .Prompt"), None, Refused(f"{UNUSABLE}an action is not closed: }}}} is missing")),
        (
            Facts(PLAIN, "{{ html .Prompt }}"),
            True,
            Refused(f"{UNUSABLE}the function html is not supported: prompts are not HTML"),
        ),
        (Facts(PLAIN, "{{ .Prompt"), None, Native()),
        (Facts("", "<|im_start|><|im_end|>{{ html .Prompt }}"), None, Native("chatml")),
        (Facts("", "{{ .Prompt", parser="p"), None, Refused(NEEDS.format('parser "p"'))),
    ],
)
def test_who_applies_which_template(facts: Facts, setting: bool | None, expected: object) -> None:
    assert prompt_mode(facts, setting) == expected


@pytest.mark.parametrize(
    ("jinja", "go", "native"),
    [
        # More abilities, and no round trip given up.
        (ROUND_TRIP, LEGACY, True),
        (ONE_WAY, LEGACY, True),
        (ONE_WAY + THINKS, GO_ONE_WAY, True),
        (ONE_WAY + THINKS, MISTRAL, False),
        (ROUND_TRIP + THINKS, MISTRAL, True),
        # The same ones: only the round trip counts.
        (ROUND_TRIP, GO_ONE_WAY, True),
        (ONE_WAY, GO_ONE_WAY, False),
        (ROUND_TRIP, MISTRAL, False),
        (PLAIN, LEGACY, False),
        # Fewer, or others.
        (ROUND_TRIP, CHATML, False),
        (ROUND_TRIP, INSERT, False),
    ],
)
def test_upstreams_choice_between_two_templates(jinja: str, go: str, native: bool) -> None:
    mode = prompt_mode(Facts(jinja, go), native_first=False)
    assert isinstance(mode, Native) is native
    assert isinstance(mode, GoTemplate) is not native


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (CHATML, "chatml"),
        (LLAMA3, "llama3"),
        (GEMMA, "gemma"),
        (COMMAND_R, "command-r"),
        (MISTRAL, "mistral-v3"),
        (LEGACY, "mistral-v1"),
        ("[INST]{{ .Prompt }}[/INST]", "mistral-v3-tekken"),
        ("[SYSTEM_PROMPT] {{ .System }}[/SYSTEM_PROMPT][INST] {{ .Prompt }}[/INST]", "mistral-v7"),
        ("[SYSTEM_PROMPT]{{ .System }}[/SYSTEM_PROMPT][INST]{{ .Prompt }}[/INST]", "mistral-v7-tekken"),
        ("[INST] <<SYS>>{{ .System }}<</SYS>>\n\n{{ .Prompt }} [/INST]", "llama2-sys"),
        ("<|im_start|>user<|im_sep|>{{ .Prompt }}<|im_end|>", "phi4"),
        ("<|user|>\n{{ .Prompt }}<|end|>\n<|assistant|>\n", "phi3"),
        ("<|user|>\n{{ .Prompt }}<|endoftext|>\n<|assistant|>\n", "zephyr"),
        ("<|user|>\n{{ .Prompt }}\n<|assistant|>\n", "falcon3"),
        ("<|header_start|>user<|header_end|>\n\n{{ .Prompt }}<|eot|>", "llama4"),
        ("<|start_of_role|>user<|end_of_role|>{{ .Prompt }}<|end_of_text|>", "granite"),
        ("<｜User｜>{{ .Prompt }}<｜Assistant｜>{{ .Response }}<｜end▁of▁sentence｜>", "deepseek3"),
        ("User: {{ .Prompt }}\n\nAssistant: {{ .Response }}<｜end▁of▁sentence｜>", "deepseek2"),
        ("### Instruction:\n{{ .Prompt }}\n### Response:\n{{ .Response }}\n<|EOT|>\n", "deepseek"),
        ("GPT4 Correct User: {{ .Prompt }}<|end_of_turn|>GPT4 Correct Assistant:", "openchat"),
        ("{{ .System }}\nUSER: {{ .Prompt }}\nASSISTANT: ", "vicuna"),
        ("SYSTEM: {{ .System }}\nUSER: {{ .Prompt }}\nASSISTANT: ", "vicuna-orca"),
        # Its turns end otherwise than those of anything the runner knows.
        ("<|user|>\n{{ .Prompt }}</s>\n<|assistant|>\n", None),
        (INSERT, None),
        ("", None),
    ],
)
def test_formats_the_runner_knows_by_name(template: str, name: str | None) -> None:
    assert builtin_template(template) == name
