"""Slots of a runner (runner-and-memory 3.3, R57, G27)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.policy_facts import model
from trio_ollama.scheduler.core.parallel import single_slot_family, slots


@pytest.mark.parametrize(
    ("changes", "configured", "expected"),
    [
        ({}, 4, 4),
        ({}, 1, 1),
        ({}, 0, 1),
        ({"completion": False}, 4, 1),
        ({"pooled": True}, 4, 1),
        *(
            ({"architecture": family}, 4, 1)
            for family in (
                *("mllama", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen3next"),
                *("lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe", "nemotron_h_omni"),
            )
        ),
        ({"architecture": "qwen3"}, 4, 4),
        ({"families": ("mllama",)}, 4, 4),  # only the architecture itself counts (G27)
    ],
)
def test_G27_slots_by_kind_and_family(changes: dict[str, Any], configured: int, expected: int) -> None:
    assert slots(model(**changes), configured) == expected


def test_only_families_are_worth_a_warning() -> None:
    assert single_slot_family(model(architecture="mllama"))
    assert not single_slot_family(model(completion=False))
