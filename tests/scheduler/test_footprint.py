"""What a runner will really take, and upstream's formula beside it (I07, I08). The numbers that are not computed here
were measured: buffer lines of the embedded runner."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policy_facts import MIB, config, gpu, model, models
from tests.support.shapes import LLAMA, SMOLLM2, configs_of_any_kind, shapes
from trio_ollama.scheduler.core.footprint import IDLE_PROCESS, Footprint, footprint
from trio_ollama.scheduler.core.memory import batch_surcharge, predict_vram
from trio_ollama.scheduler.core.values import LaunchConfig, ModelFacts, Policy, Shape

POLICY = Policy()


def of(shape: Shape | None, policy: Policy = POLICY, batch: int | None = 512, **options: object) -> Footprint:
    return footprint(model(shape=shape), config(**options), policy, batch=batch)


SMOLLM2_FACTS = model(
    file_size=98_362_432, layers=30, kv_heads=3, head_dim=64, train_context=8192, shape=SMOLLM2, architecture="llama"
)


@pytest.mark.parametrize(
    ("num_ctx", "parallel", "cache_type", "formula", "cache"),
    [
        (512, 1, "", 105.1, 11.25),
        (2048, 1, "", 138.8, 45),
        (8192, 1, "", 273.8, 180),
        (4096, 2, "", 273.8, 180),
        (8192, 1, "q8_0", 273.8, 95.62),
        (8192, 1, "q4_0", 273.8, 50.62),
        (65536, 1, "", 1533.8, 1440),
    ],
)
def test_formula_and_footprint_for_a_real_model(
    num_ctx: int, parallel: int, cache_type: str, formula: float, cache: float
) -> None:
    """The formula ignores the cache's type; both caches were told by the runner."""
    facts = replace(SMOLLM2_FACTS, train_context=0)
    wanted, policy = config(num_ctx=num_ctx, parallel=parallel), Policy(cache_type=cache_type)
    predicted = predict_vram(facts, num_ctx, parallel)
    assert round(predicted / MIB, 1) == formula
    assert predicted == 98_362_432 + 23_040 * num_ctx * parallel
    assert footprint(facts, wanted, policy).cache / MIB == pytest.approx(cache, abs=0.01)


@pytest.mark.parametrize(
    ("num_ctx", "parallel", "batch", "flash", "compute"),
    [
        (512, 1, 512, "on", 15.14),
        (2048, 1, 512, "", 16.64),
        (8192, 1, 512, "on", 22.64),
        (4096, 2, 512, "on", 18.64),
        (2048, 1, 128, "on", 4.16),
        (8192, 1, 512, "off", 167.51),
    ],
)
def test_compute_buffer_of_a_real_model(num_ctx: int, parallel: int, batch: int, flash: str, compute: float) -> None:
    found = of(SMOLLM2, Policy(flash_attention=flash), batch, num_ctx=num_ctx, parallel=parallel).compute
    assert found / MIB == pytest.approx(compute, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "compute"),
    [
        ({}, 13.02),
        ({"feed_forward": 2048}, 19.02),
        ({"feed_forward": 256}, 10.02),
        ({"queries": 1024, "keys": 1024}, 15.02),
        ({"embedding": 4096, "queries": 4096, "keys": 1024, "feed_forward": 14336}, 126.02),
        ({"embedding": 3072, "queries": 3072, "keys": 1024, "feed_forward": 8192}, 80.02),
    ],
)
def test_compute_buffer_follows_from_the_widest_step(changes: dict[str, int], compute: float) -> None:
    assert of(replace(LLAMA, **changes), num_ctx=2048).compute / MIB == pytest.approx(compute, abs=0.03)


def test_embeddings_hold_the_logits_of_a_whole_batch() -> None:
    shape = replace(LLAMA, vocabulary=50_000)
    assert of(shape, num_ctx=2048, embeddings=True).compute / MIB == pytest.approx(104.68, abs=0.03)
    assert of(shape, num_ctx=2048, embeddings=True).outputs == 4 * 50_000 * 512
    assert of(shape, num_ctx=512, parallel=4).outputs == 4 * 50_000 * 4
    assert of(replace(shape, head=False), num_ctx=2048, embeddings=True).outputs == 0


@pytest.mark.parametrize(
    ("num_ctx", "parallel", "batch", "full", "windowed"),
    [(8192, 1, 512, 16, 10), (4096, 2, 128, 16, 15), (600, 1, 512, 1.5, 7.5)],
)
def test_a_window_bounds_the_cache_of_its_layers(
    num_ctx: int, parallel: int, batch: int, full: float, windowed: float
) -> None:
    """It and one batch, in multiples of 256, for each slot: two layers of 12 see everything."""
    shape = replace(LLAMA, cached=2 * 512, window_cached=10 * 512, window=512)
    assert of(shape, batch=batch, num_ctx=num_ctx, parallel=parallel).cache == (full + windowed) * MIB


@pytest.mark.parametrize(("num_ctx", "parallel", "cells"), [(300, 1, 512), (100, 2, 512), (4, 1, 256), (512, 4, 2048)])
def test_contexts_are_rounded_up_for_each_slot(num_ctx: int, parallel: int, cells: int) -> None:
    assert of(LLAMA, num_ctx=num_ctx, parallel=parallel).cache == cells * LLAMA.cached * 2


def test_recurrent_layers_have_a_state_for_each_slot_and_no_cache() -> None:
    shape = replace(LLAMA, cached=0, attends=False, heads=0, queries=0, keys=0, feed_forward=0, inner=1024, state=77824)
    found = of(shape, num_ctx=512, parallel=4)
    assert (found.cache, found.state) == (0, 4 * 77824)
    assert of(shape, num_ctx=8192).compute == found.compute
    assert found.compute / MIB == pytest.approx(15.08, abs=0.1)


def test_a_draft_counts_only_while_it_drafts() -> None:
    drafting = replace(LLAMA, draft=replace(LLAMA, weights=3 * MIB, cached=1024))
    without = of(LLAMA, num_ctx=4096).total
    assert of(drafting, num_ctx=4096, draft="/d", draft_num_predict=0).total == without
    found = of(drafting, Policy(cache_type="q8_0"), num_ctx=4096, draft="/d", draft_num_predict=4)
    bare = replace(drafting, draft=replace(LLAMA, weights=0, cached=0, attends=True))
    assert 0 < of(bare, num_ctx=4096, draft="/d", draft_num_predict=4).draft < 20 * MIB
    # Its cache is f16, whatever the main one's type: 2 KiB for each token.
    wider = replace(drafting, draft=replace(LLAMA, weights=3 * MIB, cached=2048))
    more = of(wider, Policy(cache_type="q8_0"), num_ctx=4096, draft="/d", draft_num_predict=4)
    assert more.draft - found.draft == 8 * MIB
    assert found.total == found.draft + of(LLAMA, Policy(cache_type="q8_0"), num_ctx=4096).total


def test_on_a_gpu_the_token_embeddings_stay_in_ram() -> None:
    shape = replace(LLAMA, weights=100 * MIB, token_embeddings=30 * MIB)
    facts, wanted = model(shape=shape), config(num_ctx=2048)
    on_gpu = footprint(facts, wanted, POLICY, [gpu("a", 1 << 40)], batch=512)
    assert (on_gpu.weights, on_gpu.token_embeddings) == (70 * MIB, 30 * MIB)
    assert on_gpu.driver == 457 * MIB
    tied = footprint(replace(facts, shape=replace(shape, tied=True)), wanted, POLICY, [gpu("a", 1 << 40)], batch=512)
    assert (tied.weights, tied.token_embeddings) == (100 * MIB, 30 * MIB)
    in_ram = footprint(facts, wanted, POLICY, batch=512)
    assert (in_ram.weights, in_ram.token_embeddings, in_ram.inputs, in_ram.driver) == (100 * MIB, 0, 0, 0)


def test_the_process_and_what_a_user_lets_it_keep_are_counted() -> None:
    found = of(replace(LLAMA, vocabulary=1000, merges=500, projector=7, adapters=9), Policy(prompt_cache=11))
    assert found.process > IDLE_PROCESS
    assert (found.vocabulary, found.projector, found.adapters, found.prompt_cache) == (210 * 1500, 7, 9, 11)


def test_each_layer_has_its_descriptions() -> None:
    few, many = (footprint(model(shape=LLAMA, layers=layers), config(), POLICY).total for layers in (4, 44))
    assert many - few == 40 * 128 * 1024


def test_without_flash_attention_all_heads_hold_scores_of_the_whole_context() -> None:
    scores = of(LLAMA, Policy(flash_attention="off"), num_ctx=8192).compute
    assert scores / MIB == pytest.approx(152.01, abs=0.1)
    old = gpu("old", 1 << 40, compute=(5, 0))
    assert footprint(model(shape=LLAMA), config(num_ctx=8192), POLICY, [old], batch=512).compute == scores


def test_unknown_cache_types_count_as_f16() -> None:
    assert of(LLAMA, Policy(cache_type="q9_9")).cache == of(LLAMA).cache
    assert of(LLAMA, Policy(cache_type="Q8_0")).cache * 64 == of(LLAMA).cache * 34


@given(models, configs_of_any_kind, st.booleans(), st.sampled_from([None, 128, 1024, 2048]))
def test_without_a_shape_it_is_upstreams_formula(
    facts: ModelFacts, config: LaunchConfig, on_gpu: bool, batch: int | None
) -> None:
    policy = Policy(prompt_cache=5)
    found = footprint(facts, config, policy, [gpu("a", 1 << 40)] if on_gpu else [], batch=batch)
    formula = predict_vram(facts, config.num_ctx, config.parallel)
    assert found.host == 5
    if batch is not None:
        surcharge = batch_surcharge(batch, facts.completion and not facts.pooled)
        assert found.movable == formula + (surcharge if on_gpu else 0)
    elif not on_gpu:
        assert found.movable == formula


@given(shapes, configs_of_any_kind, st.sampled_from(["", "q8_0", "f32"]), st.booleans())
def test_I08_all_parts_are_whole_and_never_negative(
    shape: Shape, config: LaunchConfig, cache_type: str, on_gpu: bool
) -> None:
    gpus = [gpu("a", 1 << 40)] if on_gpu else []
    policy = Policy(cache_type=cache_type)
    found = footprint(model(shape=shape), config, policy, gpus)
    parts = [getattr(found, field.name) for field in fields(found)]
    assert all(type(part) is int and part >= 0 for part in parts)
    assert found.total == sum(parts) == found.movable + found.host
    wider = replace(config, num_ctx=config.num_ctx + 1000)
    assert footprint(model(shape=shape), wider, policy, gpus, batch=128).total >= (
        footprint(model(shape=shape), config, policy, gpus, batch=128).total
    )
