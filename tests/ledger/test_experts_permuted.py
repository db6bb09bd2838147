"""torchtitan's experts of 2025: spread over ranks, rows sent to them and copied by expert."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError
from trainledger.lines.line import Account

VERSION = "8a749c618774"  # of August 2025
LATENT: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1024, "tie_word_embeddings": False,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "q_lora_rank": None, "kv_lora_rank": 64, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "v_head_dim": 64,
}  # fmt: skip


def made(version: str = VERSION, model: dict[str, Any] = LATENT, **parallel: Any) -> Estimate:
    given = {"strategy": "fsdp2", "dp": 4, **parallel}
    precision = {"weights": "fp32", "compute": "bf16", "gradients": "fp32", "reduce": "fp32"}
    stack = {
        "framework": "torchtitan", "versions": {"torchtitan": version}, "recompute": "none",
        "attention": "mem-efficient",
    }  # fmt: skip
    return estimate(plan_of(model, parallel=given, precision=precision, stack=stack))


def resident(answer: Estimate, name: str) -> int:
    """Elements of one rank's part of one layer's weight."""
    lines = [one for one in answer.ledger.lines if one.account is Account.WEIGHTS and one.name.endswith(name)]
    return lines[0].unit // 4


def test_experts_are_spread_and_sharded_over_the_ranks_that_are_left() -> None:
    whole, spread = made(), made(ep=2)
    assert resident(whole, "experts.w1") == resident(spread, "experts.w1") == 8 * 128 * 256 // 4
    gathers = [
        {line.name: line.unit for line in one.ledger.lines if line.account is Account.GATHERED}
        for one in (whole, spread)
    ]
    assert gathers[1]["gathered weights of routed experts of model.layers"] == 2 * 3 * 4 * 128 * 256
    assert "gathered weights of routed experts of model.layers" not in gathers[0]
    assert (
        gathers[0]["model.layers.*.mlp.experts.w1 (whole)"] == 2 * gathers[1]["model.layers.*.mlp.experts.w1 (whole)"]
    )


def test_rows_are_sent_to_their_experts_only_where_these_are_spread() -> None:
    sent = [any("received rows" in line.name for line in one.ledger.lines) for one in (made(), made(ep=2))]
    assert sent == [False, True]


def test_the_rows_by_expert_are_a_copy_of_their_own() -> None:
    """Both are kept until backward: as the products' input, and by the name of what was sent."""
    names = {line.name.rpartition(": ")[-1] for line in made(ep=4).ledger.lines}
    assert {"tokens by expert", "rows and one of zeros", "rows by local expert", "rows as they came"} <= names


@pytest.mark.parametrize(
    ("version", "parallel", "found"),
    [
        (VERSION, {"ep": 3, "dp": 3}, "3 does not divide the experts (8)"),
        (VERSION, {"ep": 4, "dp": 2}, "ep 4 does not divide the world of 2 ranks"),
        ("0.1.0", {}, "found experts of deepseek_v3 with torchtitan 0.1.0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(version: str, parallel: dict[str, int], found: str) -> None:
    with pytest.raises(InputError) as caught:
        made(version, **parallel)
    assert found in [one.found for one in caught.value.problems]
