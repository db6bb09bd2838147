"""The page of model states adds up what the ledger has, field by field and place by place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate, states_of
from trainledger.answer.review import DIVIDES, MOMENT, Row, review
from trainledger.plan.names import Strategy

MIXED = {"weights": "bf16", "gradients": "fp32", "master": "fp32"}


def fields(model: dict[str, Any] = LLAMA, **sections: Any) -> dict[str, Row]:
    return {one.field: one for one in review(estimate(plan_of(model, **sections))).rows}


def test_every_strategy_divides_by_a_published_row() -> None:
    assert set(DIVIDES) == set(Strategy.__args__)


def test_the_ledger_of_eighteen_bytes() -> None:
    """BF16 weights, FP32 gradients, master weights and Adam: 2 + 4 + 4 + 8 bytes a parameter."""
    answer = estimate(plan_of(precision=MIXED))
    found = {one.field: one for one in review(answer).rows}
    names = ("compute weights", "gradients", "master weights", "optimizer states")
    assert [found[name].each for name in names] == [2, 4, 4, 8]
    count = answer.parameters.total
    assert sum(found[name].whole or 0 for name in names) == 18 * count
    states = states_of(answer.ledger)
    assert [found[name].rank for name in names] == list(states.values())
    assert {found[name].place for name in names} == {"device"}
    assert "first moment fp32, second moment fp32" in found["optimizer states"].value


def test_what_is_sharded_and_where_it_lies() -> None:
    found = fields(
        precision={**MIXED, "gradients": "bf16"}, parallel={"strategy": "zero3", "dp": 8},
        offload={"optimizer": "cpu"}, optimizer={"implementation": "cpu"},
    )  # fmt: skip
    assert found["compute weights"].value.startswith("bf16, sharded over 8 ranks")
    assert found["compute weights"].place == "device"
    assert found["master weights"].place == found["optimizer states"].place == "host"
    assert found["master weights"].rank == pytest.approx((found["master weights"].whole or 0) / 8, rel=0.01)
    places = [one.place for one in review(estimate(plan_of(offload={"places": {"weights": "host"}}))).rows]
    assert places[2] == "host"


def test_replicas_are_no_shards() -> None:
    found = fields(precision=MIXED, parallel={"strategy": "zero1", "dp": 4})
    assert "a replica on each of 4 data-parallel ranks" in found["compute weights"].value
    assert "sharded over 4 ranks" in found["optimizer states"].value


def test_shared_parameters_count_once_and_are_named() -> None:
    tied, apart = fields({**LLAMA, "tie_word_embeddings": True}), fields()
    assert (
        tied["shared parameters"].value
        == "lm_head.weight is model.embed_tokens.weight (262,144): one storage, counted once"
    )
    assert apart["shared parameters"].value == "none"
    difference = int(apart["parameters"].value.partition(",")[0])
    assert difference > 0
    assert (apart["compute weights"].whole or 0) - (tied["compute weights"].whole or 0) == 2 * 262_144


def test_every_expert_has_states_whether_a_token_takes_it_or_not() -> None:
    moe = {
        "model_type": "mixtral", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }  # fmt: skip
    found = fields(moe)
    experts = 2 * 8 * 3 * 128 * 256
    assert found["experts"].value.startswith(f"all are counted, {experts:,} parameters")
    assert found["optimizer states"].whole == 4 * estimate(plan_of(moe)).parameters.total


def test_what_is_no_state_stands_apart() -> None:
    answer = estimate(plan_of(parallel={"strategy": "fsdp2", "dp": 4}))
    found = {one.field: one for one in review(answer).rows}
    transient = found["transient peak of states"]
    assert "gathered weights" in transient.value
    assert transient.rank
    apart = found["not in the states"]
    assert "activations" in apart.value
    peak = answer.peak.allocated.expected
    assert (apart.rank or 0) < peak
    names = ("compute weights", "gradients", "optimizer states")
    assert found[MOMENT].rank == sum(found[name].rank or 0 for name in names)


def test_roles_are_named_and_stand_in_no_row_of_states() -> None:
    stack = {"framework": "verl", "loss": "full", "attention": "flash"}
    parallel = {"strategy": "fsdp2", "dp": 4}
    roles = {"critic": {}, "rollout": {"engine": {"tokens": 4096, "sleep_level": 2}}}
    found = fields(task="ppo", stack=stack, parallel=parallel, roles=roles)
    alone = fields(task="grpo", stack=stack, parallel=parallel, roles={"rollout": roles["rollout"]})
    assert found["optimizer states"] == alone["optimizer states"]
    assert found["other models"].value.startswith("critic, rollout: models of their own")
    assert found["other models"].rank == pytest.approx(6 * estimate(plan_of()).parameters.total / 4, rel=0.2)
    assert "other models" not in fields()
