"""A seed decides the interleaving, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from simulations.world import determinism, open_world


def trace(seed: int, run: Callable[..., list[str]] = determinism.run) -> list[str]:
    async def main() -> list[str]:
        async with open_world() as world:
            for number in range(6):
                world.client(f"m{number % 3}", tokens=20, leaves=2.0 + number / 3)
            await world.quiesce()
            return [f"{event.at} {event.text()}" for event in world.events]

    return run(main, seed=seed)


def test_this_trio_can_be_made_deterministic() -> None:
    determinism.self_test()


def test_the_same_seed_gives_the_same_events() -> None:
    """I27."""
    assert trace(7) == trace(7)


def test_other_seeds_give_other_orders() -> None:
    assert len({tuple(trace(seed)) for seed in range(8)}) > 1


def test_the_loop_takes_the_same_steps_as_that_of_trio() -> None:
    for seed in range(12):
        assert trace(seed) == trace(seed, determinism.run_on_trios_loop)


def test_an_unknown_trio_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trio, "__version__", "0.10.0")
    with pytest.raises(determinism.UnsupportedTrioError):
        determinism.run(trio.sleep, 0, seed=1)


def test_the_switch_is_put_back() -> None:
    from trio._core import _run as scheduling

    before = scheduling._ALLOW_DETERMINISTIC_SCHEDULING, scheduling._r.getstate()
    determinism.run(trio.sleep, 1, seed=1)
    assert (scheduling._ALLOW_DETERMINISTIC_SCHEDULING, scheduling._r.getstate()) == before
