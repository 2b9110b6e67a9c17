"""Who is evicted first (R42, G42)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_ollama.scheduler.core.values import FOREVER
from trio_ollama.scheduler.core.victims import eviction_order


def first(*runners: tuple[str, int, bool, int]) -> str:
    return min(runners, key=lambda runner: eviction_order(*runner))[0]


@pytest.mark.parametrize(
    ("runners", "victim"),
    [
        # TestSchedFindRunnerToUnload
        ([("a", 1, True, 1), ("b", 2, False, 2)], "b"),
        ([("a", 1, True, 1), ("b", 2, True, 2)], "a"),
        # the shortest keep-alive, for ever last, but not spared
        ([("a", 3, False, 1), ("b", 2, False, 2), ("c", 0, False, 3)], "c"),
        ([("a", FOREVER, False, 1), ("b", 300 * 10**9, False, 2)], "b"),
        ([("a", -1, False, 1), ("b", FOREVER - 1, False, 2)], "b"),
        ([("a", FOREVER, False, 1), ("b", 0, True, 2)], "a"),
        ([("b", FOREVER, False, 1), ("a", -1, False, 2)], "a"),
        # ties by key, then by generation
        ([("b", 5, False, 1), ("a", 5, False, 2)], "a"),
    ],
)
def test_R42_eviction_order(runners: list[tuple[str, int, bool, int]], victim: str) -> None:
    assert first(*runners) == victim
    assert first(*reversed(runners)) == victim


def test_equal_runners_go_in_order_of_their_generation() -> None:
    assert eviction_order("a", 5, False, 1) < eviction_order("a", 5, False, 2)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([-1, 0, 1, FOREVER, FOREVER + 1]), st.booleans()), max_size=6
    ),
    st.randoms(use_true_random=False),
)
def test_the_order_is_total_and_independent_of_the_list(kinds: list[tuple[str, int, bool]], random: Random) -> None:
    runners = [(*kind, gen) for gen, kind in enumerate(kinds)]
    ordered = sorted(runners, key=lambda runner: eviction_order(*runner))
    shuffled = list(runners)
    random.shuffle(shuffled)
    assert sorted(shuffled, key=lambda runner: eviction_order(*runner)) == ordered
