"""Go templates: an engine for the part of Go's text/template that models use, Ollama's rules around it, and parsers
for what such models answer.

Nothing here waits, reads or writes. `modes.prompt_mode` decides who renders a model's prompts; `prompt.render_prompt`
renders one; `thinking.ThinkingSplitter` and then `tool_calls.ToolCallParser` take the answer apart.
"""

from __future__ import annotations

from .chat import Message, ToolCall
from .errors import TemplateError
from .inspection import Tags, opens_thinking
from .modes import Facts, GoTemplate, Mode, Native, Refused, go_template, prompt_mode
from .prompt import DEFAULT_TEMPLATE, Prompt, render_prompt, without_bos
from .template import Template
from .thinking import ThinkingSplitter
from .tool_calls import ToolCallParser

__all__ = [
    "DEFAULT_TEMPLATE",
    "Facts",
    "GoTemplate",
    "Message",
    "Mode",
    "Native",
    "Prompt",
    "Refused",
    "Tags",
    "Template",
    "TemplateError",
    "ThinkingSplitter",
    "ToolCall",
    "ToolCallParser",
    "go_template",
    "opens_thinking",
    "prompt_mode",
    "render_prompt",
    "without_bos",
]
