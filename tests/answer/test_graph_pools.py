"""What CUDA graphs keep apart: nothing without them, inputs by what is in flight, parts by their modules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import LLAMA, LOCAL, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.graph_pools import captured, graph_pools, inputs
from trainledger.answer.tables import amounts
from trainledger.facts.cuda_graphs import GRAPHS, LAYER
from trainledger.plan.schema import Plan

TE = {GRAPHS.kind: "transformer_engine"}


def plan(options: dict[str, Any], **parallel: Any) -> Plan:
    given = {"parallel": {"dp": 1, **parallel}, "batch": {"accumulation": 4}}
    return plan_of(LLAMA, **given, stack={"options": {**LOCAL, **options}})


def answer(options: dict[str, Any], **parallel: Any) -> Estimate:
    return estimate(plan(options, **parallel))


def test_parts_by_either_option_and_the_whole_layer_without() -> None:
    assert captured(plan({})) == captured(plan({GRAPHS.kind: "none", "cuda_graph_modules": ["attn"]})) == ()
    assert captured(plan(TE)) == captured(plan({**TE, "cuda_graph_scope": "full"})) == LAYER
    for name, value in (("cuda_graph_modules", ["attn"]), ("cuda_graph_scope", "attn")):
        assert captured(plan({**TE, name: value})) == GRAPHS.scopes["attn"]
    both = captured(plan({**TE, "cuda_graph_modules": ["attn", "mlp"]}))
    assert both == (*GRAPHS.scopes["attn"], *GRAPHS.scopes["mlp"])


def test_nothing_is_kept_apart_without_graphs() -> None:
    assert graph_pools(plan({}), answer({}).ledger) == ()


def test_every_layer_in_flight_has_hidden_states_and_a_mask_of_its_own() -> None:
    given = plan({**TE, "cuda_graph_modules": ["attn"]})
    batch, length, hidden = given.batch.micro_batch, given.batch.sequence, LLAMA["hidden_size"]
    layers = LLAMA["num_hidden_layers"]
    ledger = estimate(given).ledger
    assert inputs(given, ledger) == layers * (2 * batch * length * hidden + batch * length**2)
    router = plan({**TE, "cuda_graph_modules": ["mlp"]})
    assert inputs(router, ledger) == layers * 2 * batch * length * hidden
    assert inputs(plan({GRAPHS.kind: "local"}), ledger) == 0


def test_a_pipeline_has_the_inputs_of_its_micro_batches_in_flight() -> None:
    given = plan(TE, pp=2)
    ledgers = [estimate(given, rank).ledger for rank in (0, 1)]
    first, last = (inputs(given, one) for one in ledgers)
    assert first == 2 * last  # two micro-batches in flight, and one


@pytest.mark.parametrize("parts", [["attn"], ["mlp"], ["attn", "mlp"], []])
def test_the_device_may_show_more_and_allocated_stays(parts: list[str]) -> None:
    without, graphed = answer({}), answer({**TE, "cuda_graph_modules": parts})
    assert graphed.peak == without.peak
    (more,) = graph_pools(graphed.plan, graphed.ledger)
    assert more.low == 0 < inputs(graphed.plan, graphed.ledger) <= more.expected
    assert graphed.device.expected - without.device.expected == more.expected
    assert "CUDA graphs" in next(one.why for one in amounts(graphed) if one.name == "device")
