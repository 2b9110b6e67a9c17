"""Flash attention: the user's word, else what the GPUs can do (runner-and-memory 3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.policy_facts import GIB, gpu
from trio_ollama.scheduler.core.flash_attention import flash_attention, supports_flash_attention


@pytest.mark.parametrize(
    ("changes", "supported"),
    [
        ({"compute": (6, 0)}, True),
        ({"compute": (5, 2)}, False),
        ({"compute": (7, 0)}, True),
        ({"compute": (7, 2)}, False),
        ({"compute": (12, 0)}, True),
        ({"compute": (8, 6), "driver": (0, 0)}, True),
        ({"compute": (8, 6), "driver": (7, 0)}, True),
        ({"compute": (8, 6), "driver": (6, 5)}, False),
        ({"compute": (0, 0), "library": "rocm"}, True),
        ({"compute": (0, 0), "library": "Metal"}, True),
        ({"compute": (0, 0), "library": "vulkan"}, True),
    ],
)
def test_support_by_device(changes: dict[str, Any], supported: bool) -> None:
    assert supports_flash_attention(gpu("a", GIB, **changes)) is supported


def test_one_device_without_it_switches_it_off() -> None:
    new, old = gpu("a", GIB), gpu("b", GIB, compute=(5, 0))
    assert flash_attention("", [new]) == "auto"
    assert flash_attention("", [new, old]) == "off"
    assert flash_attention("", []) == "auto"
    assert flash_attention("on", [old]) == "on"
    assert flash_attention("off", [new]) == "off"
