"""Formats of conversations that are known by the Jinja template in the file."""

from __future__ import annotations

import jinja2
import pytest

from tests.support.raw_gguf import raw_gguf
from tests.support.store_fixture import OllamaStore
from trio_ollama.models.autodetect import FORMATS, Format, autodetect
from trio_ollama.models.create import CreateRequest, create
from trio_ollama.models.details import show
from trio_ollama.models.store import Store
from trio_ollama.templates import Message, Template, render_prompt

TALK = (("system", "s"), ("user", "u"), ("assistant", "a"), ("user", "v"))

CHATML = (
    "{%- for m in messages -%}{{- '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
PHI = (
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '<|user|>\\n' + message['content'] + '<|end|>\\n' }}"
    "{% else %}{{ '<|assistant|>\\n' + message['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_both_templates_of_a_format_write_the_same(known: Format) -> None:
    jinja = jinja2.Environment().from_string(known.jinja)
    messages = [{"role": role, "content": text} for role, text in TALK]
    prompt = render_prompt(Template.parse(known.template), [Message(role, text) for role, text in TALK])
    assert prompt.text == jinja.render(messages=messages, add_generation_prompt=True, bos_token="")
    assert autodetect(known.jinja) is known


@pytest.mark.parametrize(
    ("chat_template", "name"),
    [
        (CHATML, "chatml"),
        (PHI, "phi-3"),
        ("", None),
        (CHATML.replace("im_start", "begin").replace("im_end", "end"), None),
        (CHATML + "{# tools #}", None),
        (
            CHATML
            + "{{ 'You are a model that was made with great care by people who like what they do, and it shows.' }}",
            None,
        ),
        ("x" * 100_000, None),
    ],
)
def test_what_is_known(chat_template: str, name: str | None) -> None:
    found = autodetect(chat_template)
    assert (found.name if found else None) == name


def test_a_created_model_gets_the_template_and_where_answers_end(theirs: OllamaStore, store: Store) -> None:
    digest = theirs.blob(raw_gguf({"tokenizer.chat_template": CHATML, "llama.block_count": 1}))
    request = CreateRequest(model="m", files={"m.gguf": digest}, parameters={"seed": 1})
    statuses = [step.status for step in create(store, request)]
    assert "using autodetected template chatml" in statuses
    model = store.resolve("m")
    assert model.params == {"stop": ["<|im_start|>", "<|im_end|>"], "seed": 1}
    assert "<|im_start|>" in model.template
    answer = show(model)
    assert answer["template"] == CHATML, "the file's own makes the prompts"
    assert "notes" not in answer, "nobody has asked for the other one"
    assert show(model, setting=True)["template"] == model.template


@pytest.mark.parametrize("field", ["template", "renderer", "parser"])
def test_whoever_says_how_prompts_are_made_is_obeyed(field: str, theirs: OllamaStore, store: Store) -> None:
    digest = theirs.blob(raw_gguf({"tokenizer.chat_template": CHATML, "llama.block_count": 1}))
    list(create(store, CreateRequest(model="m", files={"m.gguf": digest}, parameters={"stop": ["x"]})))
    assert store.resolve("m").params == {"stop": ["x"]}
    match field:
        case "template":
            request = CreateRequest(model="m", files={"m.gguf": digest}, template="{{ .Prompt }}")
        case "renderer":
            request = CreateRequest(model="m", files={"m.gguf": digest}, renderer="r")
        case _:
            request = CreateRequest(model="m", files={"m.gguf": digest}, parser="p")
    assert not any("autodetected" in step.status for step in create(store, request))
    assert store.resolve("m").params == {}
