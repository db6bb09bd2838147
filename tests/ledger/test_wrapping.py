"""Wrapping by size: modules, units, and where they stand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.ledger.units import ROOT_KEY
from trainledger.ledger.wrapping import by_size, strays, within
from trainledger.model.build import model_of
from trainledger.model.counts import total
from trainledger.model.program import Model

TINY = {**LLAMA, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "vocab_size": 256}
EXPERTS = {**TINY, "model_type": "mixtral", "num_local_experts": 4}
OLD = {"versions": {"torch": "2.4.1", "transformers": "4.50.0"}}
LAYER, EVERYTHING = 40_000, 10**9


def model(keys: dict[str, Any] = TINY, **sections: Any) -> Model:
    return model_of(plan_of(keys, **sections))


def made(policy: str, least: int | None = None, keys: dict[str, Any] = TINY, **sections: Any) -> Estimate:
    options = {"auto_wrap_policy": policy, **({} if least is None else {"min_num_params": least})}
    parallel = {"strategy": "fsdp1", "dp": 2, "options": {**options, **sections.pop("options", {})}}
    return estimate(plan_of(keys, parallel=parallel, **sections))


def moments(found: Estimate) -> list[tuple[str, int]]:
    return [(moment.name, moment.allocated) for moment in found.ledger.moments]


def test_children_come_first_and_the_rest_decides_about_their_parent() -> None:
    units = by_size(model(), 16_000)
    assert [unit.name for unit in units.every()] == [
        "model.embed_tokens", "model.layers.*.mlp", "model.layers.*.mlp", "model", "lm_head",
    ]  # fmt: skip
    assert units.root is None
    assert [units.spots[key].path for key in units.around] == ["model"]
    assert units.key(1, model().blocks[0].weights[0]) == units.around[0]


def test_a_list_of_modules_is_never_a_unit() -> None:
    units = by_size(model({**TINY, "vocab_size": 8}), 85_000)  # all layers together are larger than that
    assert [unit.name for unit in units.every()] == ["model", "the root"]
    listed = by_size(model(EXPERTS, stack=OLD), 60_000)  # all experts of a layer, which stand in a list
    assert "mlp.experts" not in {spot.path for spot in listed.spots.values()}
    assert {spot.path for spot in listed.spots.values()} >= {"block_sparse_moe"}


@pytest.mark.parametrize("least", [1, 64, 2_000, 8_000, 16_000, LAYER, EVERYTHING])
def test_units_are_the_whole_model(least: int) -> None:
    found = model()
    assert sum(one.weight.elements for unit in by_size(found, least).every() for one in unit.members) == total(found)


def test_views_named_after_a_module_are_not_its_calls() -> None:
    calls = [("mlp.gate", True), ("mlp.gate", False), ("mlp", False), ("mlp.down", True), ("mlpx", False)]
    assert within(calls, "mlp.gate") == [0]
    assert within(calls, "mlp") == [0, 1, 2, 3]
    assert within(calls, "attention") == []


def test_shared_weights_are_read_outside_their_unit() -> None:
    tied = model({**TINY, "tie_word_embeddings": True})
    assert strays(tied, by_size(tied, 16_000), False) == (("model.embed_tokens", "lm_head"),)
    assert by_size(tied, LAYER).key(0, tied.embeddings[0]) == ROOT_KEY
    assert strays(tied, by_size(tied, LAYER), False) == ()


def test_a_fused_loss_reads_the_weight_of_the_head() -> None:
    found = model()
    assert strays(found, by_size(found, 16_000), True) == (("lm_head", "the loss"),)
    assert strays(found, by_size(found, LAYER), True) == ()


def test_experts_of_one_operation_are_not_units() -> None:
    found = model(EXPERTS, stack=OLD)
    assert ("model.layers.*.block_sparse_moe.experts.0", "block_sparse_moe.experts") in strays(
        found, by_size(found, 16_000), False
    )


CASES: list[dict[str, Any]] = [
    {},
    {"options": {"use_orig_params": True, "backward_prefetch": "BACKWARD_POST"}},
    {"options": {"sharding_strategy": "SHARD_GRAD_OP", "no_sync": True}, "batch": {"accumulation": 3}},
    {"options": {"sharding_strategy": "NO_SHARD"}},
    {"stack": {"recompute": {"kind": "full", "reentrant": False}}, "options": {"backward_prefetch": "NO_PREFETCH"}},
    {"offload": {"params": "cpu", "optimizer": "cpu"}},
    {
        "precision": {"weights": "fp32", "compute": "bf16", "gradients": "fp32", "reduce": "fp32"},
        "batch": {"accumulation": 2},
        "options": {"no_sync": True, "use_orig_params": True},
    },
]


@pytest.mark.parametrize("sections", CASES)
def test_layers_as_units_are_what_wrapping_by_layers_is(sections: dict[str, Any]) -> None:
    assert moments(made("SIZE_BASED_WRAP", LAYER, **sections)) == moments(made("TRANSFORMER_BASED_WRAP", **sections))


@pytest.mark.parametrize("sections", CASES)
def test_what_no_module_reaches_wraps_nothing(sections: dict[str, Any]) -> None:
    nothing = moments(made("NO_WRAP", **sections))
    assert moments(made("SIZE_BASED_WRAP", EVERYTHING, **sections)) == nothing
    assert moments(made("SIZE_BASED_WRAP", **sections)) == nothing  # torch's own default


def test_smaller_units_gather_less_at_once() -> None:
    keys = {**TINY, "vocab_size": 16_384, "hidden_size": 256}
    sections = {"batch": {"sequence": 8}, "options": {"backward_prefetch": "NO_PREFETCH"}}
    most = [made("SIZE_BASED_WRAP", least, keys, **sections).steps.allocated.expected for least in (10**5, EVERYTHING)]
    assert most[0] < most[1]


@pytest.mark.parametrize("least", [2_000, 16_000, EVERYTHING])
def test_states_do_not_depend_on_units(least: int) -> None:
    named: dict[str, Any] = {"options": {"use_orig_params": True}}
    assert states_of(made("SIZE_BASED_WRAP", least, **named).ledger)["optimizer_states"] == pytest.approx(
        states_of(made("TRANSFORMER_BASED_WRAP", **named).ledger)["optimizer_states"], rel=0.02
    )
