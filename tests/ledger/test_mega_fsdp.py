"""What Megatron-FSDP keeps of states, by what it spreads over ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_dispatch import SENT
from tests.ledger.test_mega_moe import EXPERTS
from tests.ledger.test_megatron import LLAMA, plan_of
from trainledger.answer.estimate import estimate, states_of
from trainledger.base.problems import InputError
from trainledger.model.build import model_of
from trainledger.model.counts import total
from trainledger.plan.schema import Plan

RANKS = 4


def sharded(strategy: str, model: dict[str, Any] | None = None, **parallel: Any) -> Plan:
    options = {"data_parallel_sharding_strategy": strategy, **parallel.pop("options", {})}
    given = {"strategy": "megatron-fsdp", "dp": RANKS, "options": options, **parallel}
    stack = {"kernels": ["te"], "attention": "fused", "options": {}}
    return plan_of({**LLAMA, **(model or {})}, parallel=given, stack=stack)


@pytest.mark.parametrize(
    ("strategy", "weights", "gradients", "states"),
    [
        ("no_shard", 1, 1, 1),
        ("optim", 1, 1, RANKS),
        ("optim_grads", 1, RANKS, RANKS),
        ("optim_grads_params", RANKS, RANKS, RANKS),
    ],
)
def test_each_strategy_spreads_more(strategy: str, weights: int, gradients: int, states: int) -> None:
    plan = sharded(strategy)
    count, found = total(model_of(plan)), states_of(estimate(plan).ledger)
    assert found["weights"] == pytest.approx(2 * count / weights, rel=1e-3)
    assert found["gradients"] == pytest.approx(4 * count / gradients, rel=1e-3)
    assert found["master_weights"] == pytest.approx(4 * count / states, rel=1e-3)
    assert found["optimizer_states"] == pytest.approx(8 * count / states, rel=1e-3)


def test_experts_are_spread_over_the_ranks_that_hold_the_same() -> None:
    model = {**EXPERTS, "add_bias_linear": False}
    plan = sharded("optim_grads_params", model, ep=2, options=SENT)
    layers, gates = LLAMA["num_hidden_layers"], 3
    experts = layers * EXPERTS["num_experts"] * gates * LLAMA["hidden_size"] * EXPERTS["moe_intermediate_size"]
    dense = total(model_of(plan)) - experts
    local = dense / RANKS + experts / 2 / (RANKS / 2)
    assert states_of(estimate(plan).ledger)["weights"] == pytest.approx(2 * local, rel=1e-3)


def test_no_main_weights_where_they_are_the_models() -> None:
    plan = sharded("optim", options={"megatron_fsdp_main_params_dtype": "auto"})
    assert states_of(estimate(plan).ledger)["master_weights"] == 0


@pytest.mark.parametrize(("outer", "states"), [("no_shard", RANKS // 2), ("optim", RANKS)])
def test_groups_that_hold_all_weights_may_share_what_the_optimizer_keeps(outer: str, states: int) -> None:
    options = {"num_distributed_optimizer_instances": 2, "outer_dp_sharding_strategy": outer}
    plan = sharded("optim_grads_params", options=options)
    count, found = total(model_of(plan)), states_of(estimate(plan).ledger)
    assert found["weights"] == pytest.approx(2 * count / (RANKS / 2), rel=1e-3)
    assert found["gradients"] == pytest.approx(4 * count / (RANKS / 2), rel=1e-3)
    assert found["master_weights"] == pytest.approx(4 * count / states, rel=1e-3)
    assert found["optimizer_states"] == pytest.approx(8 * count / states, rel=1e-3)


def test_they_share_it_only_where_all_is_sharded_within_a_group() -> None:
    with pytest.raises(InputError, match="outer_dp_sharding_strategy"):
        estimate(sharded("optim_grads", options={"outer_dp_sharding_strategy": "optim"}))
