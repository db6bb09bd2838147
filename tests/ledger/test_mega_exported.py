"""Weights of Megatron-Core on their way to an engine, against counts by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_moe import routed
from tests.ledger.test_megatron import HIDDEN, LLAMA, plan_of
from trainledger.ledger.mega_exported import exported
from trainledger.plan.schema import Plan

WORDS, INNER = LLAMA["vocab_size"] * HIDDEN, 4 * HIDDEN * HIDDEN


def sizes(plan: Plan) -> dict[str, int]:
    return dict(exported(plan))


def of(**parallel: Any) -> dict[str, int]:
    return sizes(plan_of(LLAMA, parallel={"world": 8, **parallel}))


def test_a_weight_that_is_whole_takes_nothing() -> None:
    assert set(of().values()) == {0}


def test_another_stage_sends_its_part() -> None:
    found = of(pp=2)
    assert found["embedding.word_embeddings.weight"] == WORDS
    assert found["decoder.layers.*.mlp.linear_fc2.weight"] == INNER


def test_parts_of_all_ranks_are_joined() -> None:
    """Both are there: twice the weight, of a gated layer's two halves three times, and the part of another stage."""
    found, staged = of(tp=2), of(tp=2, pp=2)
    assert found["embedding.word_embeddings.weight"] == 2 * WORDS
    assert found["decoder.layers.*.mlp.linear_fc2.weight"] == 2 * INNER
    assert found["decoder.layers.*.mlp.linear_fc1.weight"] == 3 * 2 * INNER
    assert found["decoder.layers.*.input_layernorm.weight"] == 0
    assert staged["embedding.word_embeddings.weight"] == 2 * WORDS + WORDS // 2
    assert staged["decoder.final_layernorm.weight"] == HIDDEN


@pytest.mark.parametrize("ep", [1, 4])
def test_experts_come_one_by_one_from_every_rank(ep: int) -> None:
    plan = routed(parallel={"ep": ep})
    experts = {name: size for name, size in exported(plan) if "experts" in name and "shared" not in name}
    width = plan.keys()["moe_intermediate_size"] * plan.keys()["hidden_size"]
    expected = {name: (ep if ep > 1 else 0) * width * (2 if "fc1" in name else 1) for name in experts}
    assert experts == expected
    assert experts
