"""Saved tensors that are emptied and filled again: what stays of them, and that births and deaths match."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_mla import KV, LATENT, TURNED, Q
from tests.ledger.test_megatron import BATCH, HEADS, HIDDEN, LLAMA, SEQUENCE, plan_of
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.megatron import job_of
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

TOKENS = SEQUENCE * BATCH
TE = {"kernels": ["te"], "attention": "unfused", "options": {}, "versions": {"torch": "2.13.0"}}
ROUTED = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1536}
SENT = {"moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True}
OFFLOAD = {"fine_grained_activation_offloading": True, "min_offloaded_tensor_size": 4096}
EVERY = ["expert_fc1", "moe_act", "attn_norm", "mlp_norm", "qkv_linear", "core_attn", "attn_proj"]
AGAIN = ["layernorm", "mla_up_proj", "moe_act"]


def latent(modules: list[str], **options: Any) -> Plan:
    recompute = {"kind": "selective", "modules": modules} if modules else {"kind": "none"}
    model = {**LLAMA, **LATENT, **ROUTED, "qk_layernorm": True}
    stack = {**TE, "recompute": recompute, "options": options}
    return plan_of(model, stack=stack, parallel={"options": SENT})


def net(plan: Plan) -> tuple[int, dict[str, int]]:
    """Bytes that a layer keeps, and what is left after its backward: copies by name."""
    job = job_of(plan, model_of(plan), "sm90")
    walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
    kinds, again = walks.groups(walks.whole())[0]
    walked, lines = walks.layer(kinds, again, (False, False)), job.book.lines
    kept = sum(lines[abs(one) - 1].unit * (1 if one > 0 else -1) for one in walked.forward)
    live: dict[int, int] = {}
    for event in (*walked.forward, *walked.backward):
        line = abs(event) - 1
        live[line] = live.get(line, 0) + (1 if event > 0 else -1)
        assert live[line] >= 0 or lines[line].name in ("hidden states", "gradient of hidden states")
    return kept, {lines[line].name: copies for line, copies in live.items() if copies}


HANDED = {"hidden states", "gradient of hidden states"}


@pytest.mark.parametrize("modules", [[], ["layernorm"], ["mla_up_proj"], AGAIN])
@pytest.mark.parametrize("hosted", [[], EVERY])
def test_births_match_deaths(modules: list[str], hosted: list[str]) -> None:
    options = {**OFFLOAD, "offload_modules": hosted} if hosted else {}
    assert set(net(latent(modules, **options))[1]) <= HANDED


def test_norms_that_run_again_keep_neither_output_nor_statistics() -> None:
    plain, less = (net(latent(modules))[0] for modules in ([], ["layernorm"]))
    assert plain - less == 2 * TOKENS * (2 * HIDDEN + 4)


def test_projections_up_that_run_again_keep_their_latents_alone() -> None:
    plain, less = (net(latent(modules))[0] for modules in ([], ["mla_up_proj"]))
    width, value = LATENT["qk_nope_head_dim"] + TURNED, LATENT["v_head_dim"]
    gone = HEADS * (2 * 2 * width + 2 * value)  # queries, keys, values
    gone += 2 * Q + 4 + 2 * KV + 2 * KV + 4  # normalised latents, their statistics, the copy of one
    more = 2 * (KV + TURNED)  # both latents' own tensor, of which the keys' part was copied
    assert (plain - less) / TOKENS == pytest.approx(gone - more, abs=2 * Q)


@pytest.mark.parametrize(("module", "bytes_a_token"), [("attn_proj", 2 * HEADS * LATENT["v_head_dim"])])
def test_what_goes_to_the_host_leaves_the_device(module: str, bytes_a_token: int) -> None:
    plain, less = net(latent([]))[0], net(latent([], **OFFLOAD, offload_modules=[module]))[0]
    assert plain - less == bytes_a_token * TOKENS


def test_small_tensors_stay() -> None:
    options = {**OFFLOAD, "min_offloaded_tensor_size": 1 << 40, "offload_modules": EVERY}
    assert net(latent([], **options))[0] == net(latent([]))[0]
