"""What plans with experts are refused for under Megatron-Core, by key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_mla import LATENT
from tests.ledger.test_mega_moe import routed
from trainledger.answer.check import check
from trainledger.answer.estimate import estimate, states_of
from trainledger.base.problems import InputError
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("parallel.tp", {"model": {**LATENT, "q_lora_rank": 99}, "parallel": {"tp": 2, "sp": True}}),
        ("parallel.options.moe_token_dispatcher_type", {"options": {"moe_token_dispatcher_type": "ring"}}),
        ("parallel.options.moe_router_dtype", {"options": {"moe_router_dtype": "bf16"}}),
        (
            "parallel.options.moe_shared_expert_overlap",
            {"options": {"moe_shared_expert_overlap": True, "moe_token_dispatcher_type": "allgather"}},
        ),
        ("parallel.ep", {"parallel": {"dp": 3, "ep": 3}}),
        ("parallel.sp", {"parallel": {"tp": 2}}),
        ("stack.recompute.modules", {"stack": {"recompute": {"kind": "selective", "modules": ["router"]}}}),
        ("stack.recompute.modules", {"stack": {"recompute": {"kind": "selective", "modules": ["mla_up_proj"]}}}),
        (
            "stack.recompute.modules",
            {
                "options": {"moe_grouped_gemm": False},
                "stack": {"recompute": {"kind": "selective", "modules": ["moe_act"]}},
            },
        ),
        (
            "stack.recompute.modules",
            {
                "options": {"moe_shared_expert_overlap": True, "moe_token_dispatcher_type": "alltoall"},
                "stack": {"recompute": {"kind": "selective", "modules": ["shared_experts"]}},
            },
        ),
        (
            "parallel.options.moe_expert_capacity_factor",
            {"options": {"moe_expert_capacity_factor": 1.25, "moe_router_load_balancing_type": "sinkhorn"}},
        ),
        ("parallel.options.moe_pad_expert_input_to_capacity", {"options": {"moe_pad_expert_input_to_capacity": True}}),
        (
            "parallel.options.moe_pad_expert_input_to_capacity",
            {
                "options": {
                    "moe_pad_expert_input_to_capacity": True,
                    "moe_expert_capacity_factor": 1.0,
                    "moe_token_dispatcher_type": "flex",
                }
            },
        ),
    ],
)
def test_refused_by_name(key: str, sections: dict[str, Any]) -> None:
    with pytest.raises(InputError) as found:
        check(routed(**sections))
    assert key in [one.path for one in found.value.problems]


def test_what_is_known_passes() -> None:
    check(routed(parallel={"ep": 4, "tp": 2, "sp": True}))


HUGE = {
    "model_type": "megatron-gpt", "hidden_size": 12288, "num_hidden_layers": 128, "num_attention_heads": 96,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 49152, "num_experts": 256,
    "num_experts_per_tok": 8, "moe_intermediate_size": 4096, "shared_expert_intermediate_size": 4096,
    "vocab_size": 262144, "position_embedding_type": "rope", "normalization": "RMSNorm", "gated_linear_unit": True,
    "hidden_act": "silu", "add_bias_linear": False, "hidden_dropout": 0.0, "attention_dropout": 0.0,
    "tie_word_embeddings": False,
}  # fmt: skip


def test_five_trillion_parameters_on_32768_devices_can_be_estimated() -> None:
    plan = draft_of(
        Document(
            {
                "model": HUGE,
                "batch": {"micro_batch": 1, "sequence": 8192, "accumulation": 64},
                "parallel": {
                    "strategy": "megatron-distopt", "world": 32768, "tp": 4, "sp": True, "pp": 16, "vpp": 4,
                    "ep": 128, "etp": 1,
                    "options": {
                        "moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": True, "moe_permute_fusion": True,
                    },
                },
                "stack": {"framework": "megatron", "recompute": {"kind": "full", "method": "uniform", "num_layers": 1}},
                "device": "b200",
            },
            {},
        )
    ).plan  # fmt: skip
    found = estimate(plan)
    assert found.parameters.total > 5 * 10**12
    assert found.ranks == 32768
    weights = states_of(found.ledger)["weights"]
    # a stage's layers: experts over 128 ranks, the rest over 4; the first stage has the embedding too
    experts, layers = 256 * 3 * 12288 * 4096, 128 // 16
    dense = 2 * 12288 * 12288 + 2 * 12288 * 1024 + 3 * 12288 * 4096
    least = 2 * layers * (experts // 128 + dense // 4)
    assert least < weights < least + 2 * (262144 * 12288 // 4 + layers * 300 * 12288)
