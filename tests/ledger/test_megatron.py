"""Megatron-Core's layers against the paper's table, and what passes between stages against the schedule's counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_composer import Composer
from trainledger.ledger.mega_flow import Flow
from trainledger.ledger.mega_order import fewest
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.megatron import job_of
from trainledger.ledger.rank import rank_ledger
from trainledger.model.build import model_of
from trainledger.plan.read import read_plan
from trainledger.plan.schema import Plan

HIDDEN, HEADS, SEQUENCE, BATCH = 1024, 16, 512, 2
GPT = {
    "model_type": "megatron-gpt",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 8,
    "num_attention_heads": HEADS,
    "intermediate_size": 4 * HIDDEN,
    "vocab_size": 51200,
    "max_position_embeddings": SEQUENCE,
}
LLAMA = {
    **GPT,
    "num_key_value_heads": 4,
    "position_embedding_type": "rope",
    "normalization": "RMSNorm",
    "hidden_act": "silu",
    "gated_linear_unit": True,
    "add_bias_linear": False,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}
LOCAL = {
    "transformer_impl": "local",
    "bias_activation_fusion": False,
    "bias_dropout_fusion": False,
    "masked_softmax_fusion": False,
    "apply_rope_fusion": False,
}


PRECISION = {"weights": "bf16", "compute": "bf16", "gradients": "fp32", "reduce": "fp32", "master": "fp32"}


def plan_of(model: dict[str, Any], **parts: dict[str, Any]) -> Plan:
    given: dict[str, Any] = {
        "model": model,
        "task": "pretrain",
        "precision": {**PRECISION, **parts.get("precision", {})},
        "optimizer": {"name": "adamw", "implementation": "fused", "grad_clip": 1.0},
        "batch": {"micro_batch": BATCH, "sequence": SEQUENCE, **parts.get("batch", {})},
        "parallel": {"strategy": "megatron-distopt", **parts.get("parallel", {})},
        "stack": {
            "framework": "megatron",
            "versions": {"torch": "2.13.0", "megatron-core": "0.19.2"},
            "attention": "unfused",
            "loss": "vocab-parallel",
            "options": LOCAL,
            **parts.get("stack", {}),
        },
    }
    return read_plan({**given, **{name: parts[name] for name in ("device",) if name in parts}})


def kept(plan: Plan) -> float:
    """Bytes that one layer keeps for its backward, over sequence x batch x hidden, without the causal mask."""
    job = job_of(plan, model_of(plan), "sm90")
    walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
    (group,) = {(blocks, made) for blocks, made in walks.groups(walks.whole())}
    walked = walks.layer(*group, (False, False))
    lines = job.book.lines
    net = sum(lines[abs(event) - 1].unit * (1 if event > 0 else -1) for event in walked.forward)
    mask = SEQUENCE * SEQUENCE * (plan.stack.recompute.kind == "none" and plan.stack.attention == "unfused")
    return (net - mask) / (SEQUENCE * BATCH * HIDDEN)


SCORES = 5 * HEADS * SEQUENCE / HIDDEN
T = 4
SELECTIVE = {"kind": "selective", "modules": ["core_attn"]}
TABLE = [  # Reducing Activation Recomputation in Large Transformer Models, arXiv:2205.05198, table 2
    ({}, "none", 34 + SCORES),
    ({"tp": T}, "none", 10 + 24 / T + SCORES / T),
    ({"tp": T, "sp": True}, "none", 34 / T + SCORES / T),
    ({"tp": T}, SELECTIVE, 10 + 24 / T),
    ({"tp": T, "sp": True}, SELECTIVE, 34 / T),
    ({"tp": T}, "full", 2),
]


@pytest.mark.parametrize(("parallel", "recompute", "expected"), TABLE)
def test_a_layer_keeps_what_the_paper_says(parallel: dict[str, Any], recompute: Any, expected: float) -> None:
    plan = plan_of(GPT, parallel=parallel, stack={"recompute": recompute})
    # norms' statistics are the paper's rounding
    assert kept(plan) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("position", ["rope", "yarn"])
def test_a_quick_gelu_keeps_what_a_silu_does(position: str) -> None:
    other = {**LLAMA, "hidden_act": "quick_gelu", "position_embedding_type": position}
    assert kept(plan_of(other)) == kept(plan_of(LLAMA))


def test_a_layer_spread_over_ranks_keeps_its_input_spread() -> None:
    spread = plan_of(
        GPT, parallel={"tp": T}, stack={"recompute": "full", "options": {**LOCAL, "distribute_saved_activations": True}}
    )
    assert kept(spread) == pytest.approx(2 / T, abs=0.001)


def peak(plan: Plan, rank: int | None = None) -> Estimate:
    return estimate(plan, rank)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([1, 2, 4]), st.booleans(), st.sampled_from([1, 2, 4]))
def test_more_ranks_never_hold_more_states(tp: int, sp: bool, pp: int) -> None:
    def states(**degrees: Any) -> int:
        return sum(states_of(peak(plan_of(LLAMA, parallel={"dp": 2, **degrees})).ledger).values())

    one = states(tp=1, pp=pp)
    more = states(tp=tp, sp=sp and tp > 1, pp=pp)
    assert more <= one
    assert states(tp=tp, pp=pp) <= states(tp=tp, pp=1) + 2**20  # the output layer has its own table on another stage


def test_stages_together_hold_every_weight() -> None:
    whole = states_of(peak(plan_of(LLAMA)).ledger)["weights"]
    parts = [
        states_of(peak(plan_of(LLAMA, parallel={"pp": 4}, batch={"accumulation": 4}), rank).ledger) for rank in range(4)
    ]
    assert sum(part["weights"] for part in parts) == pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize(("stage", "flying"), [(0, 4), (1, 3), (2, 2), (3, 1)])
def test_a_stage_holds_a_layers_activations_once_for_each_micro_batch_in_flight(stage: int, flying: int) -> None:
    answer = peak(plan_of(LLAMA, parallel={"pp": 4, "dp": 1}, batch={"accumulation": 8}), stage)
    moment = next(one for one in answer.ledger.moments if one.name == "step 2: forward")
    names = {answer.ledger.lines[line].name: copies for line, copies in moment.live}
    layers = 2
    assert names["decoder.layers.*.mlp.linear_fc1: output"] in (flying * layers, flying * layers - layers + 1)


def test_interleaving_holds_more_in_flight() -> None:
    parallel = {"pp": 4, "dp": 1}
    plain = peak(plan_of(LLAMA, parallel=parallel, batch={"accumulation": 8}), 0)
    chunks = peak(
        plan_of(LLAMA, parallel={**parallel, "vpp": 2, "schedule": "interleaved"}, batch={"accumulation": 8}), 0
    )
    assert plain.peak.allocated.expected < chunks.peak.allocated.expected


def test_further_rounds_of_micro_batches_change_nothing_without_the_loss() -> None:
    few, many = (
        peak(plan_of(LLAMA, parallel={"pp": 2, "dp": 1}, batch={"accumulation": count}), 0) for count in (8, 64)
    )
    assert few.peak.allocated.expected == many.peak.allocated.expected
    assert fewest(1024, 4, 4) % 4 == 0
    assert fewest(7, 4, 4) == 7


def test_the_fullest_stage_answers_for_the_plan() -> None:
    plan = plan_of(LLAMA, parallel={"pp": 4, "dp": 1}, batch={"accumulation": 8})
    every = [peak(plan, rank).peak.allocated.expected for rank in range(4)]
    assert peak(plan).peak.allocated.expected == max(every)
    assert len(peak(plan).ledger.equals) == 4


def names(plan: Plan, moment: str, rank: int = 0) -> list[tuple[bool, str]]:
    """Births and deaths of a run up to the end of a moment's first segments, by name."""
    ledger = peak(plan, rank).ledger
    found = [one.events for one in ledger.segments if one.moment == moment]
    return [(event > 0, ledger.lines[abs(event) - 1].name) for events in found for event in events if event]


@pytest.mark.parametrize("strategy", ["megatron-ddp", "megatron-distopt"])
def test_a_master_weight_is_made_of_a_copy_of_the_weight(strategy: str) -> None:
    found = names(plan_of(LLAMA, parallel={"strategy": strategy}), "init")
    at = next(at for at, (_, name) in enumerate(found) if name.startswith("master weights"))
    own = found[at][1].removeprefix("master weights of ")
    assert found[at - 1] == (True, f"copy of {own} that becomes its master")
    assert found[at + 1] == (False, found[at - 1][1])


def test_positions_come_from_the_host_in_fp32() -> None:
    position = "embedding.position_embeddings.weight"
    found = [one for one in names(plan_of(GPT, parallel={"strategy": "megatron-ddp"}), "init") if position in one[1]]
    wide = f"{position} before its cast"
    assert found[:3] == [(True, wide), (True, position), (False, wide)]
    full = {"weights": "fp32", "compute": "fp32", "master": None}
    plain = names(plan_of(GPT, parallel={"strategy": "megatron-ddp"}, precision=full), "init")
    assert wide not in [name for _, name in plain]


def test_a_bias_that_the_product_adds_has_its_gradient_after_the_weight() -> None:
    found = [name for born, name in names(plan_of(GPT), "step 1: backward") if born and "linear_qkv" in name]
    weight, bias = (f"decoder.layers.*.gradient of self_attention.linear_qkv.{one}" for one in ("weight", "bias"))
    assert found.index(weight) < found.index(bias)


@pytest.mark.parametrize(("batch", "copies"), [(1, 0), (2, 2)])
def test_rows_of_several_sequences_have_gradients_in_another_order(batch: int, copies: int) -> None:
    """The layers' layout is sequence first: each table's own function copies the gradient first."""
    found = names(plan_of(GPT, batch={"micro_batch": batch}), "step 1: backward")
    assert found.count((True, "embedding: gradient row by row")) == copies


@pytest.mark.parametrize(("count", "first"), [(1, False), (4, True)])
def test_an_output_is_gone_before_a_gradient_comes_where_none_is_exchanged(count: int, first: bool) -> None:
    """One micro-batch: it was sent in the warm-up."""
    plan = plan_of(LLAMA, parallel={"pp": 2, "dp": 1}, batch={"accumulation": count})
    found = names(plan, "step 1: backward")
    assert (found.index((True, "gradient of hidden states")) < found.index((False, "hidden states"))) is first


STEPPED: list[dict[str, Any]] = [
    {},
    {"parallel": {"pp": 2, "world": 2}, "batch": {"accumulation": 7}},
    {"parallel": {"pp": 4, "world": 4}, "batch": {"accumulation": 3}},
    {"parallel": {"pp": 2, "vpp": 2, "tp": 2, "sp": True, "world": 4}, "batch": {"accumulation": 8}},
    {"parallel": {"strategy": "megatron-fsdp", "world": 4}},
]


@pytest.mark.parametrize("parts", STEPPED)
def test_a_step_that_begins_as_the_one_before_it_is_composed_once(
    monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any]
) -> None:
    """Every step's segments are those that composing each of them anew makes."""
    plan = plan_of(LLAMA, **parts)
    whole, composed, compose = plan.parallel.world or 1, list[str](), Composer._run

    def noted(self: Composer, step: str, *how: Any) -> None:
        composed.append(step)
        compose(self, step, *how)

    monkeypatch.setattr(Composer, "_run", noted)
    made = [rank_ledger(plan, model_of(plan), "sm90", rank) for rank in range(whole)]
    few = len(composed)
    monkeypatch.setattr(Flow, "state", property(lambda self: object()))
    assert [rank_ledger(plan, model_of(plan), "sm90", rank).segments for rank in range(whole)] == [
        one.segments for one in made
    ]
    assert few < len(composed) - few


def test_a_backward_leaves_the_tensors_of_its_own_micro_batch() -> None:
    """Forward and backward of a micro-batch have one lane, others in flight have others; one stage needs none."""
    plan = plan_of(LLAMA, parallel={"pp": 2, "dp": 1}, batch={"accumulation": 4})
    ledger = peak(plan, 0).ledger
    product = {at for at, line in enumerate(ledger.lines) if line.name.endswith("mlp.linear_fc1: output")}
    ways = (
        [one.lane for one in ledger.segments if {way * (at + 1) for at in product} & {*one.events}] for way in (1, -1)
    )
    ahead, behind = (list(dict.fromkeys(lanes)) for lanes in ways)
    assert ahead == behind
    assert len(ahead) > 1
    assert {one.lane for one in peak(plan_of(LLAMA), 0).ledger.segments} == {0}


def test_a_layers_input_that_is_spread_stays_whole_where_the_embedding_made_a_view() -> None:
    options = {**LOCAL, "distribute_saved_activations": True}
    stack = {"attention": "sdpa", "recompute": {"kind": "full", "method": "uniform"}, "options": options}
    one, two = (
        names(plan_of(LLAMA, parallel={"tp": 2}, batch={"micro_batch": count}, stack=stack), "step 1: forward")
        for count in (1, 2)
    )
    first, last = (False, "hidden states"), (False, "output_layer: output")
    assert one.index((True, "part of a layer's input")) + 1 != one.index(first)
    assert two.index((True, "part of a layer's input")) + 1 == two.index(first)
    assert [found for found in one if found in (first, last)][-1] == first


def test_weights_go_as_their_buffer_is_made_and_come_layer_by_layer() -> None:
    """Experts have a buffer of their own, which is made once the dense weights' own tensors are gone."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": HIDDEN, "num_hidden_layers": 2}
    found = names(plan_of({**LLAMA, **experts}, parallel={"dp": 2, "ep": 2}), "init")
    dense, expert = (False, "output_layer.weight"), (True, "weight buffer of experts")
    assert found.index((True, "weight buffer")) < found.index(dense) < found.index(expert)
    made = [name for born, name in found if born]
    products = [name for name in made if name.endswith(("linear_qkv.weight", "local_experts.*.linear_fc1.weight"))]
    first = [name.rpartition(".")[0].rpartition(".")[2] for name in products][: 2 * (1 + 2)]
    assert first == ["linear_qkv", "linear_fc1", "linear_fc1"] * 2
