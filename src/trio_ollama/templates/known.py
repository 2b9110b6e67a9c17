"""Which of llama.cpp's own chat templates a Go template stands for, told by the tokens it writes.

For weights that bring no chat template: the runner can then apply a template of its own, by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

__all__ = ["builtin_template"]


def _has(*tokens: str) -> Callable[[str], bool]:
    return lambda text: all(token in text for token in tokens)


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.search(pattern, text, re.DOTALL) is not None


_KNOWN: Final[tuple[tuple[str, Callable[[str], bool]], ...]] = (
    ("phi4", _has("<|im_start|>", "<|im_sep|>")),
    ("smolvlm", _has("<|im_start|>", "<end_of_utterance>")),
    ("chatml", _has("<|im_start|>", "<|im_end|>")),
    ("llama4", _has("<|header_start|>", "<|header_end|>")),
    ("llama3", _has("<|start_header_id|>", "<|end_header_id|>")),
    ("gemma", _has("<start_of_turn>", "<end_of_turn>")),
    ("command-r", _has("<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>")),
    ("granite", _has("<|start_of_role|>", "<|end_of_role|>")),
    ("deepseek2", _has("User: ", "Assistant:", "<｜end▁of▁sentence｜>")),
    ("deepseek3", _has("<｜User｜>", "<｜Assistant｜>")),
    ("exaone4", _has("[|assistant|]", "[|endofturn|]", "[|tool|]")),
    ("exaone3", _has("[|assistant|]", "[|endofturn|]")),
    ("llama2-sys", _has("[INST]", "<<SYS>>")),
    ("mistral-v7", _has("[INST]", "[SYSTEM_PROMPT] ")),
    ("mistral-v7-tekken", _has("[INST]", "[SYSTEM_PROMPT]")),
    ("mistral-v1", _matches(r"\[INST\] .* \[/INST\]")),
    ("mistral-v3", _matches(r"\[INST\] .*\[/INST\]")),
    ("mistral-v3-tekken", _has("[INST]", "[/INST]")),
    ("chatglm4", _has("[gMASK]<sop>")),
    ("chatglm3", _has("[gMASK]sop")),
    ("phi3", _has("<|assistant|>", "<|end|>")),
    ("zephyr", _has("<|user|>", "<|assistant|>", "<|endoftext|>")),
    # Others that look like it end their turns with a token, which this one does not write.
    ("falcon3", lambda text: _has("<|user|>", "<|assistant|>")(text) and "</s>" not in text),
    ("openchat", _has("GPT4 Correct ")),
    ("vicuna-orca", _has("SYSTEM: ", "USER: ", "ASSISTANT:")),
    ("vicuna", _has("USER: ", "ASSISTANT:")),
    ("deepseek", _has("### Instruction:", "<|EOT|>")),
    ("minicpm", _has("<用户>")),
    ("kimi-k2", _has("<|im_assistant|>", "<|im_middle|>")),
    ("megrez", _has("<|role_start|>", "<|role_end|>")),
)
"""The first that fits counts, so that the ones with more tokens come before those with fewer."""


def builtin_template(go_template: str) -> str | None:
    """The name llama.cpp has for this format; None if it has none, or if none is surely meant."""
    return next((name for name, fits in _KNOWN if fits(go_template)), None)
