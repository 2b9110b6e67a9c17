"""What makes a runner the wrong one for a request (R57-R59, G02, G03, G22-G24, G32)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support.policy_facts import config, configs
from trio_ollama.scheduler.core.reload import difference
from trio_ollama.scheduler.core.values import LaunchConfig


def explicit(num_ctx: int, **changes: Any) -> dict[str, Any]:
    return {"num_ctx": num_ctx, "num_ctx_auto": False, **changes}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("adapters", ("a",)),
        ("projectors", ("p",)),
        ("draft", "d"),  # DIFF, G22
        ("context_shift", False),
        ("num_thread", 4),
        ("draft_num_predict", 4),
        ("main_gpu", 0),  # unset is not 0, as upstream
        ("num_gpu", 99),
    ],
)
def test_R58_fields_that_force_a_reload(field: str, value: Any) -> None:
    assert difference(config(), config(**{field: value})) == field
    assert difference(config(**{field: value}), config(**{field: value})) is None
    if field != "num_gpu":
        assert difference(config(**{field: value}), config()) == field


def test_G22_a_template_of_the_runners_own_matters_to_those_who_need_it() -> None:
    """Names with the same weights may differ in this; whoever needs none is served by any."""
    assert difference(config(), config(chat_template="llama3")) == "chat_template"
    assert difference(config(chat_template="chatml"), config(chat_template="llama3")) == "chat_template"
    assert difference(config(chat_template="llama3"), config(chat_template="llama3")) is None
    assert difference(config(chat_template="llama3"), config()) is None


def test_the_order_of_adapters_matters() -> None:
    assert difference(config(adapters=("a", "b")), config(adapters=("b", "a"))) == "adapters"


@pytest.mark.parametrize("wanted", [-1, -7])
def test_R58_automatic_num_gpu_never_reloads(wanted: int) -> None:
    assert difference(config(num_gpu=99), config(num_gpu=wanted)) is None
    assert difference(config(num_gpu=0), config(num_gpu=wanted)) is None
    assert difference(config(num_gpu=wanted), config(num_gpu=99)) == "num_gpu"


@pytest.mark.parametrize(
    ("existing", "wanted", "because"),
    [
        # both automatic: equal, whatever the numbers (also after R49 made the runner's smaller)
        ({"num_ctx": 131072}, {"num_ctx": 262144}, None),
        ({"num_ctx": 32768}, {"num_ctx": 262144}, None),
        ({"num_ctx": 32768}, {"num_ctx": 4096}, None),
        # training context unknown: explicit numbers are compared as they are
        ({"num_ctx": 131072}, explicit(262144), "num_ctx"),
        ({"num_ctx": 131072}, explicit(131072), None),
        # G02: known, so the clamp makes them equal
        ({"num_ctx": 131072, "train_context": 131072}, explicit(262144), None),
        (explicit(2048, train_context=2048), explicit(262144), None),
        (explicit(2048, train_context=2048), explicit(262144, train_context=2048), None),
        (explicit(2048, train_context=2048), explicit(1024), "num_ctx"),
        (explicit(8192), explicit(2048), "num_ctx"),
        (explicit(2048), explicit(8192), "num_ctx"),
    ],
)
def test_R58_contexts(existing: dict[str, Any], wanted: dict[str, Any], because: str | None) -> None:
    assert difference(config(**existing), config(**wanted)) == because


@pytest.mark.parametrize(
    ("existing", "automatic", "because"),
    [
        (explicit(65536), 4096, None),  # DIFF: the seed reloads
        (explicit(4096), 4096, None),
        (explicit(2048), 4096, "num_ctx"),
        (explicit(2048, train_context=2048), 4096, None),
        (explicit(16384), 32768, "num_ctx"),
    ],
)
def test_G03_an_automatic_demand_takes_a_larger_context(
    existing: dict[str, Any], automatic: int, because: str | None
) -> None:
    assert difference(config(**existing), config(num_ctx=automatic)) == because


def test_R59_two_clients_share_one_runner() -> None:
    loads, runner = 0, None
    for turn in range(100):
        wanted = config(**(explicit(65536) if turn % 2 == 0 else {}))
        if runner is None or difference(runner, wanted) is not None:
            loads, runner = loads + 1, wanted
    assert loads == 1


@pytest.mark.parametrize(
    ("existing", "wanted", "because"),
    [
        ({"num_batch": 1024}, {"num_batch": 512}, None),  # both automatic
        ({"num_batch": 1024}, {"num_batch": 512, "num_batch_auto": False}, "num_batch"),
        ({"num_batch": 512}, {"num_batch": 512, "num_batch_auto": False}, None),
        ({"num_batch": 128, "num_batch_auto": False}, {"num_batch": 512}, None),  # DIFF, G03
        ({"num_batch": 128, "num_batch_auto": False}, {"num_batch": 512, "num_batch_auto": False}, "num_batch"),
    ],
)
def test_R58_batches(existing: dict[str, Any], wanted: dict[str, Any], because: str | None) -> None:
    assert difference(config(**existing), config(**wanted)) == because


@pytest.mark.parametrize(
    ("batch", "automatic", "num_ctx", "because"),
    [(512, False, 4096, "num_batch"), (2048, False, 4096, None), (512, False, 512, None), (512, True, 4096, None)],
)
def test_G32_an_input_to_embed_must_fit_into_the_batch(
    batch: int, automatic: bool, num_ctx: int, because: str | None
) -> None:
    existing = config(num_ctx=num_ctx, num_batch=batch, num_batch_auto=automatic, embeddings=True)
    assert difference(existing, config(num_ctx=num_ctx, embeddings=True)) == because
    assert difference(existing, config(num_ctx=num_ctx)) is None


OFF_BY_US = {"use_mmap": False, "use_mmap_auto": True}


@pytest.mark.parametrize(
    ("existing", "wanted", "because"),
    [
        (OFF_BY_US, None, None),
        (OFF_BY_US, False, None),
        (OFF_BY_US, True, "use_mmap"),
        ({"use_mmap": False}, None, "use_mmap"),
        ({"use_mmap": False}, False, None),
        ({"use_mmap": False}, True, "use_mmap"),
        ({"use_mmap": None}, None, None),
        ({"use_mmap": None}, False, "use_mmap"),
        # G23: not chosen is on; upstream compares the representation and reloads
        ({"use_mmap": None}, True, None),
        ({"use_mmap": True}, None, None),
        ({"use_mmap": True}, False, "use_mmap"),
    ],
)
def test_G23_mapping_by_its_effect(existing: dict[str, Any], wanted: bool | None, because: str | None) -> None:
    assert difference(config(**existing), config(use_mmap=wanted)) == because


def test_a_runner_with_embeddings_serves_both_kinds() -> None:
    assert difference(config(), config(embeddings=True)) == "embeddings"
    assert difference(config(embeddings=True), config()) is None
    assert difference(config(embeddings=True), config(embeddings=True)) is None


def test_R57_the_number_of_slots_is_not_compared() -> None:
    assert difference(config(parallel=1), config(parallel=4)) is None


def test_G24_the_first_difference_is_named() -> None:
    wanted = config(embeddings=True, context_shift=False, adapters=("a",), num_thread=2)
    assert difference(config(), wanted) == "embeddings"
    assert difference(config(embeddings=True), wanted) == "context_shift"
    assert difference(config(embeddings=True, context_shift=False), wanted) == "adapters"


@given(configs)
def test_I26_a_runner_serves_the_demand_it_was_made_for(wanted: LaunchConfig) -> None:
    assert difference(wanted, wanted) is None


@given(configs, configs)
def test_I26_whatever_was_reloaded_for_is_then_served(existing: LaunchConfig, wanted: LaunchConfig) -> None:
    because = difference(existing, wanted)
    assert because is None or because in LaunchConfig.__slots__
    assert because != "parallel"
