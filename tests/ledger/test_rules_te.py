"""Transformer Engine's layers against what its modules save, counted by hand; what a process keeps for them."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.answer.estimate import Estimate, estimate
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega import Backend
from trainledger.ledger.mega_choice import engine_of
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.megatron import job_of
from trainledger.model.build import model_of
from trainledger.plan.read import read_plan
from trainledger.plan.schema import Plan

from .test_megatron import BATCH, GPT, HEADS, HIDDEN, LLAMA, SEQUENCE, plan_of

TOKENS = SEQUENCE * BATCH
MIB = 2**20
VOCAB = 51200
WIDTH = 4 * HIDDEN
KV_HEADS, HEAD = 4, HIDDEN // HEADS


def te(model: dict[str, Any], **parts: dict[str, Any]) -> Plan:
    stack = {"kernels": ["te"], "attention": "fused", "options": {}, **parts.pop("stack", {})}
    stack.setdefault("versions", {"torch": "2.10.0", "megatron": "core_r0.14.0", "transformer_engine": "2.11.0"})
    return plan_of(model, stack=stack, **parts)


def kept(plan: Plan, architecture: str = "sm90") -> int:
    """Bytes that one layer keeps for its backward."""
    job = job_of(plan, model_of(plan), architecture)
    walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
    (group,) = {(blocks, made) for blocks, made in walks.groups(walks.whole())}
    walked = walks.layer(*group, (False, False))
    lines = job.book.lines
    return sum(lines[abs(event) - 1].unit * (1 if event > 0 else -1) for event in walked.forward)


RANDOM = 512  # two numbers, in one block


@pytest.mark.parametrize(("tp", "sp"), [(1, False), (4, False), (4, True)])
def test_a_gpt_layer_keeps_what_its_modules_save(tp: int, sp: bool) -> None:
    tokens = TOKENS // tp if sp else TOKENS
    whole = 2 * HIDDEN + 2 * (2 * HIDDEN + 8) + 2 * HIDDEN + 2 * HIDDEN  # inputs, normalised, statistics, masks
    parts = 8 * HIDDEN + 4 * HEADS + 2 * 2 * WIDTH  # qkv and the output, logsumexp, fc1 and its function
    expected = tokens * whole + TOKENS * parts // tp + RANDOM
    assert kept(te(GPT, parallel={"tp": tp, "sp": sp})) == expected


def test_a_llama_layer_keeps_rotated_queries_and_keys_and_a_copy_of_values() -> None:
    heads = 2 * (2 * HEADS + 2 * KV_HEADS) * HEAD + 4 * HEADS
    expected = TOKENS * (8 * HIDDEN + 2 * 4 + heads + 3 * 2 * WIDTH) + RANDOM
    assert kept(te(LLAMA)) == expected


def test_flash_attention_keeps_one_more_output_where_there_are_several_sequences() -> None:
    flash, fused = te(GPT, stack={"attention": "flash"}), te(GPT)
    assert kept(flash) - kept(fused) == 2 * TOKENS * HIDDEN
    one = {"batch": {"micro_batch": 1}}
    assert kept(te(LLAMA, stack={"attention": "flash"}, **one)) == kept(te(LLAMA, **one))


def test_written_out_attention_keeps_two_softmaxes_and_a_mask_in_place_of_the_sums() -> None:
    square = BATCH * HEADS * SEQUENCE * SEQUENCE
    more = kept(te(GPT, stack={"attention": "unfused"})) - kept(te(GPT))
    assert more == 5 * square - 4 * TOKENS * HEADS - RANDOM


@pytest.mark.parametrize(
    ("exchange", "release", "more"),
    [
        # the output is saved apart from what the projection saves
        ("a2a", "2.7.0", 0),
        ("a2a", "2.8.0", 2 * HIDDEN),
        ("a2a", "2.11.0", 2 * HIDDEN),
        ("p2p", "2.11.0", 0),
        ("p2p", "2.17.1", 2 * HIDDEN),
        ("all_gather", "2.11.0", 2 * HIDDEN),
        ("all_gather", "2.17.1", 0),
        ("a2a+p2p", "2.11.0", 0),
        ("a2a+p2p", "2.17.1", 2 * HIDDEN),
    ],
)
def test_a_spread_sequence_keeps_its_part(exchange: str, release: str, more: int) -> None:
    versions = {"megatron": "core_r0.14.0", "transformer_engine": release}
    levels = {"hierarchical_context_parallel_sizes": [2, 2]} if "+" in exchange else {}
    parallel = {"cp": 4, "options": {"cp_comm_type": exchange, **levels}}
    spread = kept(te(LLAMA, parallel=parallel, stack={"versions": versions}))
    alone = (kept(te(LLAMA)) - RANDOM) // 4
    assert spread == alone + TOKENS // 4 * more


def test_the_choice_of_attention() -> None:
    fixed = {"options": {"deterministic_mode": True}}

    def backend(model: dict[str, Any], architecture: str, stack: dict[str, Any]) -> Backend:
        engine = engine_of(te(model, stack=stack), architecture)
        assert engine is not None
        return engine.backend

    assert backend(GPT, "sm90", fixed) is Backend.FUSED
    assert backend(GPT, "sm80", {}) is Backend.FLASH
    assert backend(GPT, "sm100", {}) is Backend.FUSED
    assert backend(GPT, "sm100", fixed) is Backend.FLASH
    assert backend(LLAMA, "sm100", fixed) is Backend.FUSED  # without dropout
    assert backend(LLAMA, "sm90", {"attention": "unfused"}) is Backend.UNFUSED
    assert engine_of(te(GPT, stack={"options": {"transformer_impl": "local"}}), "sm90") is None


def live(answer: Estimate, moment: str) -> dict[str, tuple[int, int]]:
    """Bytes of one copy and copies of what is alive at a moment, by name."""
    found = next(one for one in answer.ledger.moments if one.name == moment)
    lines = answer.ledger.lines
    return {lines[number].name: (lines[number].unit, copies) for number, copies in found.live}


@pytest.mark.parametrize(
    ("device", "release", "size"),
    [("a100-80gb", "2.11.0", 4 * MIB), ("h100-80gb", "2.7", 32 * MIB), ("h100-80gb", "2.11.0", 32 * MIB + 1024)],
)
def test_the_workspace_of_products(device: str, release: str, size: int) -> None:
    plan = te(LLAMA, stack={"versions": {"megatron": "core_r0.14.0", "transformer_engine": release}})
    given = read_plan({**plan.model_dump(exclude_unset=True), "device": device})
    assert live(estimate(given), "step 2: optimizer")["Transformer Engine's cuBLAS workspace"] == (size, 1)


def test_gradients_added_in_place_leave_one_unused_tensor_of_each_shape() -> None:
    alone = live(estimate(te(LLAMA)), "step 2: optimizer")
    unused = [size for name, (size, _) in alone.items() if name.startswith("unused gradient")]
    qkv = (HEADS + 2 * KV_HEADS) * HEAD
    shapes = [qkv * HIDDEN, HIDDEN * HIDDEN, 2 * WIDTH * HIDDEN, WIDTH * HIDDEN, VOCAB * HIDDEN]
    assert sorted(unused) == sorted(2 * one for one in shapes)
    off = te(LLAMA, parallel={"options": {"gradient_accumulation_fusion": False}})
    assert not any(name.startswith("unused") for name in live(estimate(off), "step 2: optimizer"))


def test_the_batchs_mask_lives_through_a_forward() -> None:
    name, size = "causal mask of the batch", BATCH * SEQUENCE * SEQUENCE
    there = estimate(te(GPT))
    assert live(there, "step 2: forward")[name] == (size, 1)
    assert name not in live(there, "step 2: backward")
    off = te(GPT, stack={"options": {"create_attention_mask_in_dataloader": False}})
    assert name not in live(estimate(off), "step 2: forward")
    assert name not in live(estimate(te(LLAMA, parallel={"cp": 2})), "step 2: forward")


def test_weight_gradients_put_off_keep_their_gradients_and_a_graph_until_the_pipeline_has_drained() -> None:
    """The input that is listed holds the graph down to the stage's input, and that its gradient."""

    def forward(limit: int) -> dict[str, tuple[int, int]]:
        options = {"defer_embedding_wgrad_compute": bool(limit), "wgrad_deferral_limit": limit}
        parallel = {"pp": 2, "dp": 1, "options": options}
        return live(estimate(te(LLAMA, parallel=parallel, batch={"accumulation": 8}), 1), "step 2: forward")

    kept = ("decoder.final_layernorm: output", "hidden states", "gradient of hidden states")
    off = forward(0)
    for limit in (2, 3):
        found = forward(limit)
        assert found["gradient of output_layer: output"] == (2 * TOKENS * VOCAB, limit)
        assert {name: found[name][1] - off[name][1] for name in kept} == dict.fromkeys(kept, limit)


def test_stages_hold_the_layers_that_they_are_given() -> None:
    options = {"decoder_first_pipeline_num_layers": 2, "decoder_last_pipeline_num_layers": 1}
    parallel = {"pp": 3, "dp": 1, "options": options}
    model = {**LLAMA, "num_hidden_layers": 8}
    for rank, layers in enumerate((2, 5, 1)):
        answer = estimate(te(model, parallel=parallel, batch={"accumulation": 6}), rank)
        copies = live(answer, "step 2: forward")["decoder.layers.*.mlp.linear_fc1: output"][1]
        flying = min(3 - rank, 6)
        assert (flying - 1) * layers < copies <= flying * layers


def test_sharded_states_are_gathered_unit_by_unit() -> None:
    plan = te(LLAMA, parallel={"strategy": "megatron-fsdp", "dp": 4})
    answer = estimate(plan)
    end = live(answer, "step 2: optimizer")
    layer = (HEADS + 2 * KV_HEADS) * HEAD * HIDDEN + HIDDEN * HIDDEN + 3 * WIDTH * HIDDEN + 2 * HIDDEN
    root = 2 * VOCAB * HIDDEN + HIDDEN
    whole = 8 * layer + root
    for name, each in (("weights", 2), ("gradients", 4), ("master weights", 4)):
        assert end[f"this rank's part of {name}"][0] == pytest.approx(each * whole / 4, abs=512)
    assert not any("gathered" in name for name in end)  # of a release that lets go of them
    for moment in ("step 2: forward", "step 2: backward"):
        assert live(answer, moment)["gathered weights of embedding and output"] == (2 * root, 1)


@pytest.mark.parametrize(("release", "early"), [("2.7", False), ("2.8", True)])
def test_a_norms_output_dies_before_its_backward_from_a_release_on(release: str, early: bool) -> None:
    plan = te(LLAMA, stack={"versions": {"megatron": "core_r0.14.0", "transformer_engine": release}})
    job = job_of(plan, model_of(plan), "sm90")
    walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
    (group,) = {(blocks, made) for blocks, made in walks.groups(walks.whole())}
    died = [job.book.lines[-event - 1].name for event in walks.layer(*group, (False, False)).backward if event < 0]
    for layer in ("self_attention.linear_qkv", "mlp.linear_fc1"):
        name = f"decoder.layers.*.{layer}"
        assert (died.index(f"{name}: normalised") < died.index(f"{name}: gradient of the norm's output")) is early


def test_megatrons_own_fused_softmax_keeps_its_result_and_no_mask() -> None:
    local = {"transformer_impl": "local", "bias_activation_fusion": False, "bias_dropout_fusion": False}
    wide = {**local, "attention_softmax_in_fp32": True}

    def own(options: dict[str, Any]) -> int:
        return kept(plan_of(GPT, stack={"options": options}))

    square = BATCH * HEADS * SEQUENCE * SEQUENCE
    assert own(wide) == own(local)  # the kernel's result is in 16 bits whatever is asked for
    assert own({**wide, "masked_softmax_fusion": False}) - own(wide) == 2 * square + SEQUENCE * SEQUENCE


@pytest.mark.parametrize(
    ("exchange", "beside"),
    [
        ("a2a", {"of all tokens", "output", "output's gradient of all tokens", "gradient"}),
        ("p2p", {f"{what} of step {at}" for what in ("output", "logsumexp") for at in (1, 3)}
         | {"keys and values received in step 1"}),
        ("all_gather", {f"{what} of half 1" for what in (
            "queries", "keys or values", "logsumexp", "output", "gradient of queries", "gradient of keys or values",
            "sums of query gradients and of softmax",
        )}),
        ("a2a+p2p", {"of more tokens", "output received", "output's gradient of all tokens", "gradient",
                     "output of step 1", "logsumexp of step 1"}),
    ],
)  # fmt: skip
def test_what_an_exchange_makes_on_the_stream_beside(exchange: str, beside: set[str]) -> None:
    levels = {"hierarchical_context_parallel_sizes": [2, 2]} if "+" in exchange else {}
    plan = te(LLAMA, parallel={"cp": 4, "options": {"cp_comm_type": exchange, **levels}})
    made = [line for line in estimate(plan).ledger.lines if line.use.stream]
    assert {line.name.split(": ")[-1].split(" (")[0] for line in made} == beside


def test_gathered_keys_and_values_are_copied_where_flash_attention_reads_several_sequences() -> None:
    def most(name: str, **batch: int) -> int:
        plan = te(LLAMA, parallel={"cp": 4, "options": {"cp_comm_type": "all_gather"}}, batch=batch)
        found = [line for line in estimate(plan).ledger.lines if line.name.endswith(f": {name}")]
        return sum(line.unit for line in found)

    both = 2 * 2 * 2 * TOKENS // BATCH * KV_HEADS * HEAD  # keys and values of two whole sequences in 16 bits
    assert most("gathered, in order", micro_batch=1) == most("gathered", micro_batch=1)
    assert most("keys or values of half 1", micro_batch=1) == 0
    assert most("keys or values of half 1", micro_batch=2) == both // 2
    assert most("copy, sequence first", micro_batch=2) == both // 2 // 4  # each of the two


@pytest.mark.parametrize(("tie", "pp", "waits"), [(True, 1, True), (False, 1, False), (True, 2, False)])
def test_a_tied_output_layers_gradient_waits_for_the_embeddings(tie: bool, pp: int, waits: bool) -> None:
    model = {**GPT, "vocab_size": 4096, "tie_word_embeddings": tie}
    recompute = {"kind": "selective", "modules": ["core_attn"]}
    plan = plan_of(
        model,
        stack={"options": {"transformer_impl": "local"}, "recompute": recompute, "attention": "unfused"},
        batch={"sequence": 2048},
        parallel={"pp": pp},
    )
    names = [name for name in live(estimate(plan), "step 2: backward") if name.startswith("first gradient")]
    assert bool(names) is waits
