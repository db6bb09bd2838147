"""What attention through latents keeps, against a closed formula."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.ledger.test_mega_moe import kept
from tests.ledger.test_megatron import BATCH, HEADS, HIDDEN, LLAMA, LOCAL, SEQUENCE, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError
from trainledger.facts.dtypes import BF16
from trainledger.ledger.megatron import job_of
from trainledger.ledger.rules import lower
from trainledger.ledger.tape import EXTERNAL
from trainledger.ledger.walk import run_forward
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

Q, KV, STRAIGHT, TURNED, VALUE = 384, 256, 128, 64, 128
LATENT = {
    "q_lora_rank": Q,
    "kv_lora_rank": KV,
    "qk_nope_head_dim": STRAIGHT,
    "qk_rope_head_dim": TURNED,
    "v_head_dim": VALUE,
    "num_key_value_heads": None,
}
TE = {"kernels": ["te"], "attention": "fused", "versions": {"torch": "2.13.0", "transformer_engine": "2.11"}}


def saved(**model: Any) -> float:
    """Bytes of a token that a layer keeps for attention, with its own norm and residual."""
    plan = plan_of({**LLAMA, **LATENT, **model}, stack={**TE, "options": {}})
    width = LLAMA["intermediate_size"]
    dense = 2 * HIDDEN + 2 * HIDDEN + 4 + 6 * width  # the feed-forward's input, its norm, fc1's result, its function's
    return kept(plan) / (SEQUENCE * BATCH) - dense


HEAD = STRAIGHT + TURNED
CORE = HEADS * (2 * 2 * HEAD + 2 * VALUE + 2 * VALUE + 4)  # queries, keys, values, their sums, logsumexp
INPUT = 2 * HIDDEN + 4  # of its own input, which is the layer's, only the norm's result is new


def test_latents_with_norms_keep_them_before_and_after() -> None:
    latents = 2 * Q + 2 * Q + 4 + 2 * KV + 2 * KV + 4
    assert saved(qk_layernorm=True) == pytest.approx(INPUT + latents + CORE + 2 * HIDDEN, abs=2 * HIDDEN + 8)
    assert saved(qk_layernorm=True) - saved() == pytest.approx(2 * Q + 2 * KV + 8, abs=1)


def test_queries_straight_from_hidden_states_keep_no_latent() -> None:
    assert saved() - saved(q_lora_rank=None) == pytest.approx(2 * Q, abs=1)


def test_wider_values_alone_widen_values_and_output() -> None:
    assert saved(v_head_dim=VALUE + 32) - saved() == pytest.approx(HEADS * 4 * 32, abs=1)


def test_megatrons_own_layers_keep_no_copy_of_the_latent() -> None:
    own, wider = (
        kept(plan_of({**LLAMA, **LATENT, "kv_lora_rank": rank}, stack={"attention": "unfused"}))
        for rank in (KV, KV + 64)
    )
    assert (wider - own) / (SEQUENCE * BATCH) == pytest.approx(2 * 64, abs=1)
    assert saved(kv_lora_rank=KV + 64) - saved() == pytest.approx(2 * 64, abs=1)


OWN = {"attention": "unfused", "options": LOCAL}


def own_layers(tp: int, sp: bool = False, **model: Any) -> Plan:
    keys = {**LLAMA, **LATENT, **model}
    return plan_of(keys, parallel={"tp": tp, "world": tp, "sp": sp}, stack=OWN, batch={"micro_batch": 1})


def kept_by_attention(plan: Plan) -> Counter[str]:
    """Bytes that Megatron's own attention keeps, by operation; what it reads is kept besides."""
    job = job_of(plan, model_of(plan), "sm90")
    frame, ranks = job.frame(), plan.parallel.tp if plan.parallel.sp else 1
    dims = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, SEQUENCE // ranks), Axis(Dim.HIDDEN, HIDDEN))
    frame.names["n"] = frame.tape.inherit(dims, BF16, True, "n")
    ops = job.model.blocks[0].ops
    names = [op.name for op in ops]
    first = next(at for at, name in enumerate(names) if name.startswith("self_attention."))
    lower(frame, ops[first : names.index("self_attn_bda")])
    held = run_forward(frame.tape, frozenset({frame.names["x"]}), saving=True).held
    made = (frame.tape.storages[one] for one in held if one not in (EXTERNAL, *frame.tape.inherited))
    found = Counter[str]()
    for one in made:
        found[one.name.removeprefix("self_attention.")] += one.size
    return found


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_megatrons_own_projections_down_are_spread_and_gathered(tp: int) -> None:
    plan = own_layers(tp, qk_layernorm=True)
    shapes = {one.name: one.shape for one in job_of(plan, model_of(plan), "sm90").model.blocks[0].weights}
    assert shapes["self_attention.linear_q_down_proj.weight"] == (Q // tp, HIDDEN)
    assert shapes["self_attention.linear_kv_down_proj.weight"] == ((KV + TURNED) // tp, HIDDEN)
    assert shapes["self_attention.linear_kv_up_proj.weight"] == (HEADS * (STRAIGHT + VALUE) // tp, KV)
    kept_ = kept_by_attention(plan)
    whole = "output" if tp == 1 else "gathered"
    gather = "" if tp == 1 else ".gather"
    assert kept_[f"linear_q_down_proj{gather}: {whole}"] == 2 * SEQUENCE * Q
    assert kept_[f"linear_kv_down_proj{gather}: {whole}"] == 2 * SEQUENCE * (KV + TURNED)


@pytest.mark.parametrize("tp", [2, 4])
def test_of_a_spread_sequence_the_latent_is_a_copy_and_the_queries_a_view_of_what_was_gathered(tp: int) -> None:
    found = kept_by_attention(own_layers(tp, True, qk_layernorm=True))
    assert found["linear_q_down_proj.gather: gathered"] == 2 * SEQUENCE * Q
    assert found["latents: part of the latent"] == 2 * SEQUENCE // tp * KV
    assert "linear_kv_down_proj.gather: gathered" not in found
    assert found["q_layernorm: output"] == 2 * SEQUENCE // tp * Q


@pytest.mark.parametrize("sp", [False, True])
def test_more_ranks_never_keep_more(sp: bool) -> None:
    totals = [sum(kept_by_attention(own_layers(tp, sp and tp > 1, qk_layernorm=True)).values()) for tp in (1, 2, 4)]
    assert totals == sorted(totals, reverse=True)


def test_all_ranks_hold_the_projections_once() -> None:
    sizes = []
    for tp in (1, 2, 4):
        plan = own_layers(tp)
        weights = job_of(plan, model_of(plan), "sm90").model.blocks[0].weights
        sizes.append(tp * sum(one.elements for one in weights if "_proj" in one.name))
    assert len(set(sizes)) == 1


def test_ranks_that_do_not_divide_a_latent_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        estimate(own_layers(4, q_lora_rank=Q + 2))
    assert [one.path for one in caught.value.problems] == ["parallel.tp"]
