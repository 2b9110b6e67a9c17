"""Ollama's rules around a template, on templates like the ones models come with."""

from __future__ import annotations

import datetime
from typing import Any, Final

import pytest

from trio_ollama.templates import (
    DEFAULT_TEMPLATE,
    Message,
    Prompt,
    Template,
    TemplateError,
    ToolCall,
    render_prompt,
    without_bos,
)

CHATML: Final = """\
{{- if or .System .Tools }}<|im_start|>system
{{ .System }}
{{- if .Tools }}
Tools:
{{- range .Tools }}
{{ json . }}
{{- end }}{{ end }}<|im_end|>
{{ end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "user" }}<|im_start|>user
{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ if .Thinking }}<think>{{ .Thinking }}</think>
{{ end }}{{ .Content }}
{{- range .ToolCalls }}<tool_call>
{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}
</tool_call>{{ end }}{{ if not $last }}<|im_end|>
{{ end }}
{{- else if eq .Role "tool" }}<|im_start|>tool
{{ .ToolName }}: {{ .Content }}<|im_end|>
{{ end }}
{{- if and $last (ne .Role "assistant") }}<|im_start|>assistant
{{ if and .Content (not $.Think) $.IsThinkSet }}<think></think>
{{ end }}{{ end }}{{ end }}"""

LEGACY: Final = """\
{{ if .System }}<s>{{ .System }}
{{ end }}{{ if .Prompt }}[INST] {{ .Prompt }} [/INST]{{ end }}{{ .Response }}</s>"""

LLAMA3: Final = """\
{{ if .System }}<|start_header_id|>system<|end_header_id|>

{{ .System }}<|eot_id|>{{ end }}{{ if .Prompt }}<|start_header_id|>user<|end_header_id|>

{{ .Prompt }}<|eot_id|>{{ end }}<|start_header_id|>assistant<|end_header_id|>

{{ .Response }}<|eot_id|>"""

GEMMA: Final = """\
<start_of_turn>user
{{ if .System }}{{ .System }} {{ end }}{{ .Prompt }}<end_of_turn>
<start_of_turn>model
{{ .Response }}<end_of_turn>
"""

MISTRAL: Final = """\
{{- range $index, $_ := .Messages }}
{{- if eq .Role "user" }}
{{- if and (le (len (slice $.Messages $index)) 2) $.Tools }}[AVAILABLE_TOOLS] {{ $.Tools }}[/AVAILABLE_TOOLS]{{ end -}}
[INST] {{ if and (eq (len (slice $.Messages $index)) 1) $.System }}{{ $.System }}

{{ end }}{{ .Content }}[/INST]
{{- else if eq .Role "assistant" }}
{{- if .Content }} {{ .Content }}</s>{{ end }}
{{- if .ToolCalls }}[TOOL_CALLS] [
{{- range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}{{ end }}]</s>
{{- end }}
{{- else if eq .Role "tool" }}[TOOL_RESULTS] {"content": {{ json .Content }}} [/TOOL_RESULTS]
{{- end }}{{ end }}"""

COMMAND_R: Final = """\
{{- if or .Tools .System }}<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>
{{- with .System }}{{ . }}{{ end }}
{{- range .Tools }}
def {{ .Function.Name }}(
{{- range $name, $property := .Function.Parameters.Properties -}}
{{ $name }}: {{ $property.Type }} {{ toTypeScriptType $property }};
{{- end }})
{{- end }}<|END_OF_TURN_TOKEN|>
{{- end }}
{{- range .Messages }}
{{- if eq .Role "system" }}{{ continue }}{{ end }}<|START_OF_TURN_TOKEN|>
{{- if eq .Role "user" }}<|USER_TOKEN|>{{ .Content }}
{{- else if eq .Role "assistant" }}<|CHATBOT_TOKEN|>{{ .Content }}
{{- end }}<|END_OF_TURN_TOKEN|>
{{- end }}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"""

INSERT: Final = "{{ if .Suffix }}<PRE> {{ .Prompt }} <SUF>{{ .Suffix }} <MID>{{ else }}{{ .Prompt }}{{ end }}"

TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "extra": 1,
        "function": {
            "name": "weather",
            "description": "of a <city>",
            "parameters": {
                "type": "object",
                "required": ["city"],
                "properties": {
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "city": {"type": ["string", "null"], "description": "its name", "title": "dropped"},
                },
            },
        },
    }
]

USER, REPLY, AGAIN = Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "Bye")


def text(template: str, *messages: Message, **more: Any) -> str:
    return render_prompt(Template.parse(template), messages, **more).text


def test_chatml() -> None:
    assert text(CHATML, USER, REPLY, AGAIN, system="Be brief.") == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )


def test_an_answer_that_was_begun_goes_on() -> None:
    assert text(CHATML, USER, REPLY).endswith("<|im_start|>assistant\nHello")


def test_a_whole_round_with_tools_and_thinking() -> None:
    call = Message(
        "assistant", thinking="Look.", tool_calls=(ToolCall("weather", {"unit": "C", "city": "Rome", "days": 3}),)
    )
    assert text(CHATML, USER, call, Message("tool", "sunny", tool_name="weather"), tools=TOOLS) == (
        "<|im_start|>system\n\nTools:\n"
        '{"type":"function","function":{"name":"weather","description":"of a \\u003ccity\\u003e","parameters":'
        '{"type":"object","required":["city"],"properties":{"city":{"type":["string","null"],"description":"its name"},'
        '"unit":{"type":"string","enum":["C","F"]}}}}}<|im_end|>\n'
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>Look.</think>\n"
        '<tool_call>\n{"name": "weather", "arguments": {"city":"Rome","days":3,"unit":"C"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\nweather: sunny<|im_end|>\n<|im_start|>assistant\n"
    )


def test_mistral() -> None:
    call = Message("assistant", tool_calls=(ToolCall("weather", {}, "c1"),))
    result = Message("tool", '"fine"')
    assert text(MISTRAL, USER, call, result, AGAIN, system="S", tools=TOOLS[:0]) == (
        "[INST] Hi[/INST][TOOL_CALLS] [" + '{"name": "weather", "arguments": {}}]</s>'
        '[TOOL_RESULTS] {"content": "\\"fine\\""} [/TOOL_RESULTS][INST] S\n\nBye[/INST]'
    )
    assert text(MISTRAL, USER, tools=TOOLS).startswith('[AVAILABLE_TOOLS] [{"type":"function","function":{"name":')


def test_command_r() -> None:
    assert text(COMMAND_R, USER, REPLY, AGAIN, system="S", tools=TOOLS) == (
        "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S\n"
        "def weather(city: [string null] string | null;unit: string string;)<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Hi<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>Hello<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>Bye<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
    )


def test_without_messages_each_exchange_is_rendered_and_the_last_one_cut() -> None:
    assert text(LEGACY, USER, REPLY, AGAIN, system="S") == "<s>S\n[INST] Hi [/INST]Hello</s>[INST] Bye [/INST]"
    assert text(LLAMA3, USER, REPLY, AGAIN).endswith(
        "Hello<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert text(GEMMA, USER, system="S") == "<start_of_turn>user\nS Hi<end_of_turn>\n<start_of_turn>model\n"
    # An answer that was begun goes on.
    assert text(GEMMA, USER, REPLY) == "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\nHello"


def test_without_messages_a_later_system_text_begins_a_new_exchange() -> None:
    later = Message("system", "T")
    assert text(LEGACY, USER, later, AGAIN, system="S") == "<s>S\n[INST] Hi [/INST]</s><s>T\n[INST] Bye [/INST]"
    assert text(LEGACY, later, USER, REPLY, later) == "<s>T\n[INST] Hi [/INST]Hello</s><s>T\n"


def test_without_messages_nothing_is_lost_between_neighbours_of_one_role() -> None:
    assert text("<{{ .Prompt }}|{{ .Response }}>", USER, Message("tool", "x"), AGAIN) == "<Hi|><Bye|"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ .Prompt }}:", "Hi:HelloBye:"),
        ("{{ .Prompt }}{{ if .Response }}={{ .Response }};{{ end }}!", "Hi=Hello;!Bye"),
        ("{{ .Prompt }}{{ if .Prompt }}[{{ .Response }}]{{ else }}x{{ end }}y", "Hi[Hello]yBye["),
        ("{{ .Prompt }}{{ if .Response }}{{ .Response }}{{ else }}x{{ end }}y", "HiHelloyBye"),
        ('{{ .Prompt }}{{ .Response | printf "<%s>" }}!', "Hi<Hello>!Bye<>"),
        ("{{ if .Response }}a{{ end }}{{ .Prompt }}{{ .Response }}b", "aHiHellobBye"),
    ],
)
def test_where_the_answer_begins(template: str, expected: str) -> None:
    assert text(template, USER, REPLY, AGAIN) == expected


def test_the_default_template_is_the_prompt_alone() -> None:
    assert text(DEFAULT_TEMPLATE, prompt="Once upon") == "Once upon"


def test_what_is_inserted_knows_both_sides_and_nothing_else() -> None:
    template = Template.parse(INSERT + "{{ .System }}{{ .Response }}")
    assert (
        render_prompt(template, prompt="def f(", suffix=")", system="S").text == "<PRE> def f( <SUF>) <MID><no value>"
    )
    assert text(INSERT, prompt="a") == "a"


def test_neighbours_of_one_role_are_joined_but_for_results_of_tools() -> None:
    shown = (
        "{{ range .Messages }}{{ .Role }}({{ .Content }}{{ .Thinking }}{{ len .ToolCalls }}{{ len .Images }}){{ end }}"
        "{{ .System }}"
    )
    call = Message("assistant", "", "why", tool_calls=(ToolCall("f", {}),))
    assert text(shown, USER, AGAIN, call, call, Message("tool", "1"), Message("tool", "2")) == (
        "user(Hi\n\nBye00)assistant(why\n\nwhy20)tool(100)tool(200)"
    )
    assert text(shown, Message("system", "T"), USER, Message("system", "U"), system="S") == (
        "system(S\n\nT00)user(Hi00)system(U00)S\n\nT\n\nU"
    )
    images = (Message("user", "a", images=(b"1",)), Message("user", "b", images=(b"2", b"3")))
    assert text(shown, *images) == "user([img-0]a\n\n[img-1][img-2]b03)"


def test_images_are_numbered_over_the_whole_request() -> None:
    messages = (
        Message("user", "see [img] and [img]", images=(b"a", b"b", b"c")),
        Message("assistant", "yes"),
        Message("user", "[img]?", images=(b"d",)),
    )
    assert render_prompt(Template.parse("{{ range .Messages }}{{ .Content }};{{ end }}"), messages) == Prompt(
        "[img-2]see [img-0] and [img-1];yes;[img-3]?;", (b"a", b"b", b"c", b"d")
    )
    legacy = render_prompt(Template.parse("{{ .Prompt }}{{ .Response }};"), messages)
    assert legacy.text == "[img-2]see [img-0] and [img-1]yes;[img-3]?"
    assert len(legacy.images) == 4


@pytest.mark.parametrize(
    ("think", "expected"),
    [(None, "false,,false"), (False, "false,,true"), (True, "true,,true"), ("low", "true,low,true")],
)
def test_thinking_is_told_to_the_template(think: bool | str | None, expected: str) -> None:
    for way in ("{{ .Prompt }}", "{{ if .Messages }}{{ end }}", "{{ .Suffix }}"):
        shown = text(
            f"{way}{{{{ .Think }}}},{{{{ .ThinkLevel }}}},{{{{ .IsThinkSet }}}}", prompt="x", suffix="y", think=think
        )
        assert shown.endswith(expected)


def test_values_print_as_upstream_prints_them() -> None:
    call = Message("assistant", tool_calls=(ToolCall("f", {"b": [1, 2.5], "a": {"x": None}}, "c1", 2),))
    shown = (
        "{{ range .Messages }}{{ range .ToolCalls }}{{ .ID }} {{ .Function.Index }} {{ .Function.Arguments }} "
        "{{ json . }}{{ . }}{{ range $k, $v := .Function.Arguments }}{{ $k }}={{ $v }};{{ end }}{{ end }}{{ end }}"
    )
    as_json = '{"id":"c1","function":{"name":"f","arguments":{"a":{"x":null},"b":[1,2.5]}}}'
    assert text(shown, call) == (f'c1 2 {{"a":{{"x":null}},"b":[1,2.5]}} {as_json}{as_json}a=map[x:<nil>];b=[1 2.5];')
    assert text("{{ .Messages | len }}{{ .Tools }}", USER) == "1null"
    assert text(
        "{{ range .Tools }}{{ .Function.Parameters.Required }}{{ .Type }}{{ end }}{{ len .Messages }}",
        USER,
        tools=TOOLS,
    ) == ("[city]function1")
    whole = text("{{ .Tools }}{{ range .Messages }}{{ end }}", USER, tools=TOOLS)
    assert whole == text("{{ json .Tools }}{{ range .Messages }}{{ end }}", USER, tools=TOOLS)
    assert whole.startswith('[{"type":"function",')


def test_types_of_properties_in_typescript() -> None:
    properties = {
        "a": {"type": "integer"},
        "b": {"type": ["array", "object", "odd"]},
        "c": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "d": {},
    }
    tools = [{"function": {"name": "f", "parameters": {"properties": properties}}}]
    shown = (
        "{{ range .Messages }}{{ end }}{{ range .Tools }}{{ range .Function.Parameters.Properties }}"
        "{{ toTypeScriptType . }}; {{ end }}{{ end }}{{ toTypeScriptType 1 }}"
    )
    assert text(shown, USER, tools=tools) == "number; any[] | Record<string, any> | any; boolean | null; any; any"


def test_odd_tools_are_empty_where_they_are_odd() -> None:
    assert text("{{ range .Messages }}{{ end }}{{ .Tools }}", USER, tools=[{"type": 1, "function": []}]) == (
        '[{"type":"","function":{"name":"","description":"","parameters":{"type":"","properties":{}}}}]'
    )


@pytest.mark.parametrize("shown", ["{{ range .Messages }}{{ . }}{{ end }}", "{{ .Messages }}", "{{ json .Messages }}"])
def test_a_message_as_a_whole_has_no_text(shown: str) -> None:
    with pytest.raises(TemplateError, match="a message cannot be printed, only its fields can"):
        text(shown, USER)


def test_a_field_that_messages_do_not_have_is_an_error() -> None:
    with pytest.raises(TemplateError, match="line 2: a value of kind message has no field Name"):
        text("{{ range .Messages }}\n{{ .Name }}{{ end }}", USER)


def test_the_day_is_given() -> None:
    assert text("{{ .Prompt }}{{ currentDate }}", prompt="x", today=datetime.date(2026, 1, 2)) == "x2026-01-02"


def test_a_beginning_that_the_tokenizer_adds_itself_goes() -> None:
    assert without_bos("<s>[INST] <s>", "<s>") == "[INST] <s>"
    assert without_bos("[INST]", "<s>") == "[INST]"
    assert without_bos("<s>x", "") == "<s>x"
