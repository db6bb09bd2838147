"""Formula and trace of adapters of stacked experts and their routers, in PEFT's newest release."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.evidence.trace.families import FAMILIES, RECOMPUTE
from tests.plans import plan_of
from tests.witness.steps import phases
from tests.witness.test_adapters import PRECISIONS
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.plan_run import run_plan
from trainledger.evidence.trace.live.session import where_of

CLOSE = 4e-4  # under FSDP2 ends of a thousandth part of a block differ
BIASES = {"target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"], "lora_alpha": 8}
# family, targets, adapters' dtype, precision, recompute, strategy, options
CASES: list[tuple[str, Any, str, str, str, str, dict[str, Any]]] = [
    ("qwen3_moe", "all-linear", "fp32", "bf16", "none", "none", {}),
    ("qwen3_moe", "all-linear", "bf16", "autocast", "full", "none", {"lora_alpha": 32}),
    ("qwen3_moe", "all-linear", "bf16", "bf16", "none", "fsdp2", {}),
    ("mixtral", ["q_proj", "w1", "w3", "w2"], "fp32", "autocast", "none", "none", {"use_rslora": True}),
    ("mixtral", "all-linear", "fp32", "fp32", "full", "none", {}),
    ("deepseek_v3", r".*\.(kv_b_proj|down_proj|gate)", "fp32", "bf16", "full", "none", {}),
    ("gpt_oss", ["q_proj"], "fp32", "bf16", "none", "none", BIASES),
    ("gpt_oss", ["q_proj"], "bf16", "bf16", "full", "none", {**BIASES, "lora_alpha": 16}),
]


def compared(family: str, adapter: dict[str, Any], precision: str, recompute: str, strategy: str = "none") -> None:
    """Hold every phase of a run by formula against its trace."""
    world = 1 if strategy == "none" else 8
    plan = plan_of(
        FAMILIES[family],
        adapter={"kind": "lora", "r": 8, **adapter},
        precision={**PRECISIONS[precision], "gradients": adapter["dtype"]},
        batch={"micro_batch": 2, "sequence": 256, "accumulation": 1},
        parallel={"strategy": strategy, "world": world, "dp": world},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"},
            "recompute": RECOMPUTE[recompute],
            "attention": "eager" if family == "gpt_oss" else "sdpa",
            "allocator": {"expandable_segments": True},
        },
    )
    ours = phases(estimate(plan).ledger.moments)
    real = phases(trace_of(run_plan(plan, where_of(job_of(plan))), conf=read_conf(plan.stack.allocator)).moments)
    assert {name: ours[name] / size - 1 for name, size in real.items() if abs(ours[name] / size - 1) > CLOSE} == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "targets", "dtype", "precision", "recompute", "strategy", "options"), CASES)
def test_formula_and_trace_agree(
    family: str, targets: Any, dtype: str, precision: str, recompute: str, strategy: str, options: dict[str, Any]
) -> None:
    adapter = {"targets": targets, "dtype": dtype, "options": options}
    compared(family, adapter, precision, recompute, strategy)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "extra", "recompute"),
    [("qwen3_moe", "gate", "none"), ("qwen3_moe", "experts", "none"), ("qwen3_moe", "mlp", "full"),
     ("mixtral", "norm", "none")],
)  # fmt: skip
def test_modules_of_every_kind_that_are_trained_whole_agree(family: str, extra: str, recompute: str) -> None:
    """A router, stacked experts, all around them; and a name that is the end of many."""
    adapter = {"targets": ["q_proj"], "dtype": "bf16", "train_extra": [extra]}
    compared(family, adapter, "bf16", recompute)
