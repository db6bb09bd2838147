"""Whatever a plan for Megatron-Core says, the answer is an estimate or a list of problems: nothing else ends it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.house.rules import ROOT
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.cli.main import main
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of

GPT: dict[str, Any] = {
    "model_type": "megatron-gpt", "hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 768, "vocab_size": 2048, "max_position_embeddings": 512,
}  # fmt: skip
LLAMA = {
    **GPT, "position_embedding_type": "rope", "normalization": "RMSNorm", "gated_linear_unit": True,
    "add_bias_linear": False, "hidden_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": False,
}  # fmt: skip
MOE = {**LLAMA, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
LATENT = {
    **MOE, "qk_layernorm": True, "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "first_k_dense_replace": 2, "shared_expert_intermediate_size": 128,
}  # fmt: skip
QWEN = {**GPT, "model_type": "qwen2"}
OTHER = {**GPT, "model_type": "gpt_neox"}
FEW = (1, 1, 1, 2, 2, 3, 4, 8)


def degree() -> st.SearchStrategy[int]:
    return st.sampled_from(FEW)


def some(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping in which any of these keys may be missing."""
    return st.fixed_dictionaries({}, optional=strategies)


layouts = st.sampled_from(["Et*4|t*4L", "E|t*4|t*4|L", "Et*3|t*5mL", "nonsense", "Ett|tt|tt|ttL", ""])
parallel = some(
    strategy=st.sampled_from(["megatron-ddp", "megatron-distopt", "megatron-fsdp", "zero3", "none"]),
    tp=degree(), pp=degree(), cp=degree(), ep=degree(), etp=degree(), dp=degree(), vpp=degree(), sp=st.booleans(),
    schedule=st.sampled_from([None, "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe", "dualpipev"]),
    options=some(
        decoder_first_pipeline_num_layers=st.integers(0, 9),
        decoder_last_pipeline_num_layers=st.integers(0, 9),
        pipeline_model_parallel_layout=layouts,
        account_for_embedding_in_pipeline_split=st.booleans(),
        account_for_loss_in_pipeline_split=st.booleans(),
        microbatch_group_size_per_virtual_pipeline_stage=st.integers(0, 9),
        overlap_moe_expert_parallel_comm=st.booleans(),
        overlap_grad_reduce=st.booleans(),
        use_tp_pp_dp_mapping=st.booleans(),
        defer_embedding_wgrad_compute=st.booleans(),
        wgrad_deferral_limit=st.integers(0, 3),
        gradient_accumulation_fusion=st.booleans(),
        num_distributed_optimizer_instances=st.integers(0, 3),
        use_precision_aware_optimizer=st.booleans(),
        ddp_bucket_size=st.sampled_from([0, 1, 10**6]),
        ddp_num_buckets=st.integers(0, 3),
        cp_comm_type=st.sampled_from(["p2p", "a2a", "all_gather", "ulysses", "a2a+p2p", "no"]),
        moe_token_dispatcher_type=st.sampled_from(["allgather", "alltoall", "flex"]),
        moe_grouped_gemm=st.booleans(),
        moe_permute_fusion=st.booleans(),
        moe_router_dtype=st.sampled_from(["fp32", "fp64", "bf16", "no"]),
        moe_router_load_balancing_type=st.sampled_from(["aux_loss", "seq_aux_loss", "sinkhorn", "none", "no"]),
        moe_expert_capacity_factor=st.sampled_from([0, 0.5, 1.0, -1.0, 100.0]),
        moe_pad_expert_input_to_capacity=st.booleans(),
        data_parallel_sharding_strategy=st.sampled_from(["optim_grads_params", "optim", "no_shard"]),
    ),
)  # fmt: skip
recompute = st.one_of(
    st.sampled_from(["none", "full", "selective"]),
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["full", "selective"])},
        optional={
            "method": st.sampled_from(["uniform", "block"]),
            "num_layers": st.integers(1, 10),
            "modules": st.lists(
                st.sampled_from(["core_attn", "mlp", "moe", "moe_act", "shared_experts", "layernorm", "x"])
            ),
            "policy": st.sampled_from(["op", "every 2nd layer"]),
            "reentrant": st.booleans(),
        },
    ),
)
stack = st.fixed_dictionaries(
    {"framework": st.sampled_from(["megatron", "nemo", "megatron-bridge"])},
    optional={
        "attention": st.sampled_from(["flash", "sdpa", "mem-efficient", "flex", "eager", "unfused", "fused"]),
        "recompute": recompute,
        "loss": st.sampled_from(
            ["full", "full-fp32", "chunked", "vocab-parallel", "vocab-parallel-fused", "vocab-parallel-te"]
        ),
        "kernels": st.sampled_from([[], ["te"], ["liger"], ["te", "apex"]]),
        "versions": st.sampled_from([{}, {"megatron-core": "0.8.0"}, {"transformer_engine": "1.9", "torch": "2.1"}]),
        "options": some(
            transformer_impl=st.sampled_from(["local", "transformer_engine", "no"]),
            deterministic_mode=st.booleans(),
            distribute_saved_activations=st.booleans(),
            moe_router_force_load_balancing=st.booleans(),
            bias_activation_fusion=st.booleans(),
            masked_softmax_fusion=st.booleans(),
            apply_query_key_layer_scaling=st.booleans(),
            make_vocab_size_divisible_by=st.integers(0, 300),
        ),
    },
)
model = st.builds(
    lambda base, changes: {**base, **changes},
    st.sampled_from([GPT, LLAMA, MOE, LATENT, QWEN, OTHER]),
    some(
        num_hidden_layers=st.integers(1, 9),
        num_attention_heads=st.sampled_from([1, 3, 8, 12]),
        num_key_value_heads=st.sampled_from([None, 1, 2, 3, 8]),
        head_dim=st.sampled_from([None, 1, 31, 64]),
        vocab_size=st.sampled_from([1, 2001, 50257, 0, "many"]),
        num_experts=st.sampled_from([None, 1, 2, 6, 8, 0, -1]),
        num_experts_per_tok=st.sampled_from([1, 2, 9]),
        moe_layer_freq=st.sampled_from([1, 2, [0, 1], [1] * 8, "no", 0]),
        first_k_dense_replace=st.sampled_from([0, 1, 9]),
        moe_intermediate_size=st.sampled_from([1, 128, 130]),
        num_nextn_predict_layers=st.sampled_from([0, 1, "x"]),
        qk_layernorm=st.booleans(),
        add_qkv_bias=st.booleans(),
        add_bias_linear=st.booleans(),
        position_embedding_type=st.sampled_from(["rope", "none", "learned_absolute", "no"]),
    ),
)
precision = some(
    weights=st.sampled_from(["fp32", "bf16", "fp16", "fp8"]),
    compute=st.sampled_from(["fp32", "bf16", "fp16", "fp8", "mxfp8"]),
    autocast=st.booleans(),
    gradients=st.sampled_from(["fp32", "bf16", "fp16"]),
    main_gradients=st.sampled_from([None, "fp32"]),
    master=st.sampled_from([None, "fp32"]),
    reduce=st.sampled_from([None, "fp32", "bf16"]),
    norms=st.sampled_from([None, "fp32"]),
    grad_scaler=st.booleans(),
)
plans = st.fixed_dictionaries(
    {
        "model": model,
        "batch": st.fixed_dictionaries(
            {"micro_batch": st.integers(1, 3), "sequence": st.sampled_from([1, 7, 128, 256])},
            optional={
                "accumulation": st.sampled_from([1, 2, 5, 8, 16]),
                "expert_load": st.sampled_from(["mean", "worst", 1.5, 100]),
            },
        ),
        "parallel": parallel,
        "stack": stack,
    },
    optional={
        "precision": precision,
        "optimizer": some(
            name=st.sampled_from(["adam", "adamw", "sgd", "adafactor", "muon", "adamw-8bit", "lion"]),
            implementation=st.sampled_from(["loop", "foreach", "fused", "apex-fused", "cpu"]),
            grad_clip=st.sampled_from([None, 1.0]),
            in_backward=st.booleans(),
        ),
        "task": st.sampled_from(["pretrain", "sft", "dpo"]),
        "device": st.sampled_from(["h100-80gb", "a100-80gb", "t4"]),
    },
)


def refusal(data: dict[str, Any], last: bool) -> InputError | None:
    """Why the plan is refused; None where it is estimated: its fullest rank, or its last one."""
    try:
        plan = draft_of(Document(data, {})).plan
        found = estimate(plan, plan.parallel.world - 1 if last else None)
    except InputError as error:
        return error
    assert found.peak.allocated.expected > 0
    return None


def check(data: dict[str, Any], last: bool) -> None:
    refused = refusal(data, last)
    if refused is not None:
        assert refused.problems
        assert all(problem.path for problem in refused.problems)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plans, st.booleans())
def test_a_plan_is_estimated_or_refused(data: dict[str, Any], last: bool) -> None:
    check(data, last)


EMPTY_ENDS: dict[str, Any] = {
    "model": LLAMA, "batch": {"micro_batch": 1, "sequence": 128, "accumulation": 8},
    "parallel": {"pp": 4, "options": {"pipeline_model_parallel_layout": "E|t*4|t*4|L"}},
    "stack": {"framework": "megatron"},
}  # fmt: skip
EXAMPLE = str(ROOT / "examples" / "llama-3.1-70b-megatron.yaml")

tame = st.fixed_dictionaries(
    {
        "model": st.sampled_from([GPT, LLAMA, MOE, LATENT, QWEN]),
        "batch": st.just({"micro_batch": 1, "sequence": 128, "accumulation": 8}),
        "parallel": some(
            tp=st.sampled_from([1, 2, 4]), pp=st.sampled_from([1, 2, 4]), cp=st.sampled_from([1, 2]),
            dp=st.sampled_from([1, 2]), ep=st.sampled_from([1, 2]), vpp=st.sampled_from([1, 2]), sp=st.booleans(),
            strategy=st.sampled_from(["megatron-ddp", "megatron-distopt", "megatron-fsdp"]),
            options=some(gradient_accumulation_fusion=st.booleans(), overlap_grad_reduce=st.booleans(),
                         pipeline_model_parallel_layout=st.sampled_from(
                             ["Et*4|t*4L", "E|t*8L", "E|t*4|t*4|L", "Et|tt|t*5|L"])),
        ),
        "stack": st.fixed_dictionaries(
            {"framework": st.sampled_from(["megatron", "nemo", "megatron-bridge"])},
            optional={
                "attention": st.sampled_from(["flash", "sdpa", "eager", "unfused", "fused"]),
                "recompute": recompute,
                "kernels": st.sampled_from([[], ["te"]]),
            },
        ),
        "precision": precision,
    }
)  # fmt: skip


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tame, st.booleans())
@example({**EMPTY_ENDS, "parallel": {**EMPTY_ENDS["parallel"], "strategy": "megatron-ddp"}}, True)
@example({**EMPTY_ENDS, "parallel": {**EMPTY_ENDS["parallel"], "strategy": "megatron-ddp"}}, False)
@example({**EMPTY_ENDS, "parallel": {**EMPTY_ENDS["parallel"], "strategy": "megatron-fsdp"}}, True)
def test_a_plan_near_one_that_runs_is_estimated_or_refused(data: dict[str, Any], last: bool) -> None:
    check(data, last)


def test_stages_without_layers_are_estimated() -> None:
    assert refusal(EMPTY_ENDS, last=True) is None
    assert refusal(EMPTY_ENDS, last=False) is None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(
        ["parallel.tp", "parallel.vpp", "stack.framework", "stack.recompute", "model.num_experts", "model"]
    ),
    st.one_of(st.text(max_size=8), st.sampled_from(["megatorn", "-1", "1e9", "[1]", "{a: 1}", "selectiv", "null"])),
    st.sampled_from(["", "x", "s"]),
)
def test_typos_end_with_problems_or_an_answer(key: str, value: str, more: str) -> None:
    """Exit code 0 or 2, never 3: the program's own failure."""
    given = [f"{key}{more}={value}"] if "\0" not in value else []
    assert main(["estimate", EXAMPLE, *(part for one in given for part in ("--set", one))]) in (0, 2)


@pytest.mark.parametrize(
    "options",
    [{"num_distributed_optimizer_instances": 2}, {"ddp_pad_buckets_for_high_nccl_busbw": True}],
)
def test_what_a_release_stops_at_is_a_problem(options: dict[str, Any]) -> None:
    """Several instances need the distributed optimizer; padded buckets came with 0.12."""
    data = {
        "model": LLAMA, "batch": {"micro_batch": 1, "sequence": 128},
        "parallel": {"dp": 4, "strategy": "megatron-ddp", "options": options},
        "stack": {"framework": "megatron", "versions": {"megatron-core": "0.8.0"}},
    }  # fmt: skip
    refused = refusal(data, last=False)
    assert refused is not None
    assert [one.path for one in refused.problems] == ["parallel.options"]
