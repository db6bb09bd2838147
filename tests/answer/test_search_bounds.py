"""The lower bounds are below the exact estimates' low ends, for plans drawn at random, and near enough to be of use."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.answer.search_goals import EXPERTS, SMALL, small, template
from trainledger.answer.estimate import estimate
from trainledger.answer.search_bounds import bounds_of, each_of
from trainledger.answer.search_goal import Goal, goal_of, plan_of
from trainledger.answer.search_shape import shape_of
from trainledger.answer.search_space import base_plan, grid_of
from trainledger.facts.search_recipes import LOW_PRECISION
from trainledger.model.build import model_of

LATENT: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 8, "intermediate_size": 2048, "vocab_size": 32000, "n_routed_experts": 16,
    "num_experts_per_tok": 4, "moe_intermediate_size": 512, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 512, "kv_lora_rank": 256, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "num_nextn_predict_layers": 1, "tie_word_embeddings": False,
}  # fmt: skip
LOW = {"precision": LOW_PRECISION}
GOALS = {
    "megatron": small,
    "megatron fp8": lambda: goal_of(template(SMALL, **LOW), "8xh100-80gb", 64, 8192),
    "megatron experts": lambda: small(model=EXPERTS),
    "megatron latent fp8": lambda: goal_of(template(LATENT, **LOW), "8xh100-80gb", 32, 4096),
    "torchtitan": lambda: small("torchtitan"),
    "transformers": lambda: small("transformers"),
    "deepspeed": lambda: small("deepspeed"),
}
DRAWN = 5


@pytest.mark.parametrize("name", GOALS)
def test_no_bound_is_above_the_exact_low_end(name: str) -> None:
    goal: Goal = GOALS[name]()
    base, grid = base_plan(goal), grid_of(goal)
    bounds = bounds_of(goal, base, shape_of(model_of(base), base.keys()), grid)
    short = [row for row in range(len(grid)) if grid.column("accumulation")[row] <= 16]  # long steps take long
    shares = []
    for row in random.Random(name).sample(short, min(DRAWN, len(short))):
        found = estimate(plan_of(goal, grid.candidate(row)))
        assert bounds.allocated[row] <= found.peak.allocated.expected, grid.candidate(row)
        assert bounds.device[row] <= found.device.low, grid.candidate(row)
        if found.verdict.outcome == "fits":
            assert not bounds.out[row], grid.candidate(row)
        if bounds.never[row]:
            assert found.verdict.outcome == "does-not-fit", grid.candidate(row)
        shares.append(bounds.allocated[row] / found.peak.allocated.expected)
    assert np.median(shares) > 0.3, shares


@pytest.mark.parametrize("name", ["megatron", "megatron experts"])
def test_the_bound_of_activations_on_the_host_is_not_above(name: str) -> None:
    goal: Goal = GOALS[name]()
    base = base_plan(goal)
    grid = grid_of(replace(goal, policies=tuple(one for one in goal.policies if one.hosted)))
    bounds = bounds_of(goal, base, shape_of(model_of(base), base.keys()), grid)
    short = [row for row in range(len(grid)) if grid.column("accumulation")[row] <= 16]
    for row in random.Random(name).sample(short, DRAWN):
        found = estimate(plan_of(goal, grid.candidate(row)))
        assert bounds.allocated[row] <= found.peak.allocated.expected, grid.candidate(row)


def test_an_optimizer_on_the_host_or_an_adapter_bounds_nothing_of_it() -> None:
    base = base_plan(small())
    whole = each_of(base)
    assert (whole.weights, whole.gradients, whole.states) == (2.0, 4.0, 12.0)
    away = base.model_copy(update={"offload": base.offload.model_copy(update={"optimizer": "cpu"})})
    assert each_of(away).states == 0
    frozen = base.model_copy(update={"trainable": "none"})
    assert (each_of(frozen).gradients, each_of(frozen).states) == (0.0, 0.0)
