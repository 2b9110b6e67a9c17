"""Contexts: floors, clamps, tiers, step-down and shift (R49, R58, R62, G14, G33)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policy_facts import GIB, model
from trio_ollama.scheduler.core.context import (
    clamp,
    default_context,
    floor_context,
    resolve_shift,
    step_down,
    supports_shift,
)


@pytest.mark.parametrize(
    ("num_ctx", "vision", "floored"),
    [
        (128, True, 2048),  # TestSchedVisionContextFloor
        (4096, True, 4096),
        (128, False, 128),
        (3, False, 4),
        (0, False, 4),
        (-1, True, 2048),
    ],
)
def test_R58_floors(num_ctx: int, vision: bool, floored: int) -> None:
    assert floor_context(num_ctx, vision) == floored


@pytest.mark.parametrize(
    ("num_ctx", "train", "clamped"), [(262144, 131072, 131072), (4096, 131072, 4096), (262144, 0, 262144), (4, 2, 2)]
)
def test_G33_no_more_than_the_model_was_trained_for(num_ctx: int, train: int, clamped: int) -> None:
    assert clamp(num_ctx, train) == clamped


@pytest.mark.parametrize(
    ("vram", "context"),
    [
        (0, 4096),
        (23 * GIB - 1, 4096),
        (23 * GIB, 32768),
        (47 * GIB - 1, 32768),
        (47 * GIB, 262144),
        (1 << 64, 262144),
    ],
)
def test_R62_default_context_by_vram(vram: int, context: int) -> None:
    assert default_context(vram) == context


@pytest.mark.parametrize(
    ("num_ctx", "train", "smaller"),
    [
        (262144, 131072, 32768),  # TestSchedFirstLoadOOMReducesAutomaticContextAndRetries
        (262144, 0, 32768),
        (32769, 0, 32768),
        (32768, 0, 4096),
        (262144, 32768, 4096),
        (262144, 8192, 4096),
        (4097, 0, 4096),
        (4096, 0, None),
        (262144, 4096, None),  # the clamp leaves nothing to reduce
        (2048, 0, None),
    ],
)
def test_R49_automatic_context_is_reduced_in_steps(num_ctx: int, train: int, smaller: int | None) -> None:
    assert step_down(num_ctx, train) == smaller


@pytest.mark.parametrize(
    ("architecture", "families", "supported"),
    [
        ("llama", (), True),
        ("", (), True),
        ("deepseek2", (), False),
        ("other", ("llama", "deepseek2"), False),
        ("deepseek", ("deepseek2x",), True),
    ],
)
def test_shift_is_on_except_for_deepseek2(architecture: str, families: tuple[str, ...], supported: bool) -> None:
    facts = model(architecture=architecture, families=families)
    assert supports_shift(architecture, families) is supported
    assert resolve_shift(None, facts) is supported  # TestResolveContextShift
    assert resolve_shift(True, facts) is True
    assert resolve_shift(False, facts) is False


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 20))
def test_stepping_down_always_comes_to_an_end(num_ctx: int, train: int) -> None:
    steps = 0
    while (smaller := step_down(num_ctx, train)) is not None:
        assert type(smaller) is int
        assert 0 < smaller < num_ctx
        assert clamp(smaller, train) < clamp(num_ctx, train)
        num_ctx = smaller
        steps += 1
    assert steps <= 2
