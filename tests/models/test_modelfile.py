"""The Modelfile's grammar, read and written."""

from __future__ import annotations

import codecs
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_ollama.models.errors import ModelfileError
from trio_ollama.models.manifest import Message
from trio_ollama.models.modelfile import Command, Modelfile, write_commands

WHOLE = '''\
# a comment
FROM ./model.gguf
from ./projector.gguf

PARAMETER temperature 0.7
parameter stop <|im_end|>
PARAMETER stop "two words "
PARAMETER num_ctx 4096
PARAMETER use_mmap T
TEMPLATE """{{ .System }}
"quoted"
# no comment in here
{{ .Prompt }}"""
SYSTEM first
SYSTEM "You are
brief."
ADAPTER ./lora.gguf
DRAFT ./draft.gguf
LICENSE MIT
LICENSE """
Apache
"""
MESSAGE user Hello, it's "me".
  MESSAGE assistant """Hi."""
RENDERER qwen3-coder
PARSER qwen3
REQUIRES 0.14.0
'''


def check_whole(modelfile: Modelfile) -> None:
    assert modelfile.sources == ("./model.gguf", "./projector.gguf")
    assert modelfile.parameters == {
        "temperature": 0.7,
        "stop": ["<|im_end|>", "two words "],
        "num_ctx": 4096,
        "use_mmap": True,
    }
    assert modelfile.template == '{{ .System }}\n"quoted"\n# no comment in here\n{{ .Prompt }}'
    assert modelfile.system == "You are\nbrief."
    assert modelfile.adapters == ("./lora.gguf",)
    assert modelfile.draft == "./draft.gguf"
    assert modelfile.licenses == ("MIT", "\nApache\n")
    assert modelfile.messages == (Message("user", 'Hello, it\'s "me".'), Message("assistant", "Hi."))
    assert (modelfile.renderer, modelfile.parser, modelfile.requires) == ("qwen3-coder", "qwen3", "0.14.0")


@pytest.mark.parametrize(
    "data",
    [
        WHOLE,
        WHOLE.encode(),
        codecs.BOM_UTF8 + WHOLE.encode(),
        codecs.BOM_UTF16_LE + WHOLE.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + WHOLE.encode("utf-16-be"),
        WHOLE.replace("\n", "\r\n"),
        WHOLE.rstrip("\n"),
    ],
)
def test_a_whole_modelfile(data: str | bytes) -> None:
    check_whole(Modelfile.parse(data))


def test_what_is_written_reads_the_same() -> None:
    check_whole(Modelfile.parse(write_commands(Modelfile.parse(WHOLE).commands)))


_COMMANDS = (
    'command must be one of "from", "license", "template", "system", "adapter", "draft", "renderer", "parser", '
    '"parameter", "message", or "requires"'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no FROM line"),
        ("# FROM x\n", "no FROM line"),
        ("SYSTEM x\n", "no FROM line"),
        ("FROM x\n\nBOGUS y\n", f"(line 3): {_COMMANDS}"),
        ("FROM x\nMESSAGE robot hi\n", '(line 2): message role must be one of "system", "user", or "assistant"'),
        ("FROM x\nMESSAGE\n", '(line 2): message role must be one of "system", "user", or "assistant"'),
        ('FROM x\nSYSTEM """never\nended', "unexpected EOF"),
        ('FROM x\nSYSTEM "never ended\n', "unexpected EOF"),
        ('FROM x\nSYSTEM """', "unexpected EOF"),
        ("FROM\n", "unexpected EOF"),
        ('FROM ""\n', "unexpected EOF"),
        ("FROM x\nPARAMETER\n", "unexpected EOF"),
        ("FROM x\nPARAMETER seed\n", "unexpected EOF"),
    ],
)
def test_errors_say_where(text: str, message: str) -> None:
    with pytest.raises(ModelfileError) as caught:
        Modelfile.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("PARAMETER bogus 1", "unknown parameter 'bogus'"),
        ("PARAMETER num_ctx 1.5", "invalid int value [1.5]"),
        ("PARAMETER num_ctx 1_000", "invalid int value [1_000]"),
        ("PARAMETER temperature hot", "invalid float value [hot]"),
        ("PARAMETER use_mmap yes", "invalid bool value [yes]"),
    ],
)
def test_parameters_are_checked(line: str, message: str) -> None:
    with pytest.raises(ModelfileError) as caught:
        _ = Modelfile.parse(f"FROM x\n{line}\n").parameters
    assert str(caught.value) == message


def test_deprecated_parameters_only_warn(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert Modelfile.parse("FROM x\nPARAMETER mirostat 2\nPARAMETER seed 1\nPARAMETER seed 2").parameters == {
            "seed": 2
        }
    assert "parameter mirostat is deprecated and ignored" in caplog.text


@pytest.mark.parametrize("version", ["1", "1.2", "0.14.0", "v1.2.3-rc.1+build"])
def test_versions(version: str) -> None:
    assert Modelfile.parse(f"FROM x\nREQUIRES {version}").requires == version


@pytest.mark.parametrize("version", ["new", "01.2", "1.2.3.4", "1.", ">=1"])
def test_what_is_no_version(version: str) -> None:
    modelfile = Modelfile.parse(f"FROM x\nREQUIRES {version}")
    with pytest.raises(ModelfileError, match=r"^requires must be a valid semver \(e\.g\. 0\.14\.0\)$"):
        _ = modelfile.requires


def test_a_draft_is_another_file() -> None:
    with pytest.raises(ModelfileError, match="DRAFT must not be the same path as FROM"):
        _ = Modelfile.parse("FROM a\nDRAFT a").draft


_text = st.text(alphabet='ab \n\t#"é', max_size=12).filter(lambda text: '"""' not in text)


@given(st.lists(st.tuples(st.sampled_from(["system", "template", "license"]), _text), max_size=5))
def test_any_text_survives_writing_and_reading(values: list[tuple[str, Any]]) -> None:
    commands = (Command("from", "x"), *(Command(instruction, text) for instruction, text in values))
    assert Modelfile.parse(write_commands(commands)).commands == commands


def test_a_long_unfinished_text_is_read_in_linear_time() -> None:
    with pytest.raises(ModelfileError, match="unexpected EOF"):
        Modelfile.parse('FROM x\nSYSTEM """' + "a line of text\n" * 200_000)
