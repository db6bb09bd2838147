"""What holds for every plan that torchtitan runs: it replays, and its steps leave nothing behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.ledger.test_experts_torchtitan import MOE
from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.lines.line import Account

QWEN = {**LLAMA, "model_type": "qwen3", "head_dim": 64}
OP, EVERY = {"kind": "selective", "policy": "op"}, {"kind": "selective", "policy": "every 2nd layer"}
STAYS = (Account.WEIGHTS, Account.OPTIMIZER, Account.BUFFERS, Account.INPUTS, Account.WORKSPACE, Account.ENDS)


@pytest.mark.parametrize("strategy", ["none", "fsdp2", "fsdp1"])
@pytest.mark.parametrize("recompute", ["none", "full", OP, EVERY], ids=str)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("compute", ["bf16", "fp8", "mxfp8"])
def test_steps_replay_and_leave_nothing(strategy: str, recompute: Any, compiled: bool, compute: str) -> None:
    for model, version in ((LLAMA, "40f8fd007957"), (LLAMA, "2271b6386db6"), (QWEN, "6fc499f6"), (MOE, "1690e0ae")):
        stack = {"framework": "torchtitan", "versions": {"torchtitan": version}, "recompute": recompute}
        answer = estimate(
            plan_of(
                model,
                stack={**stack, "compile": compiled, "loss": "full-fp32"},
                precision={"weights": "fp32", "gradients": "fp32", "compute": compute, "reduce": "fp32"},
                parallel={"strategy": strategy, "world": 1 if strategy == "none" else 4},
                batch={"micro_batch": 2, "sequence": 128, "accumulation": 2},
            )
        )
        alive: Counter[int] = Counter()
        for _, events, repeat, _ in answer.ledger.segments:
            for event in events:
                alive[abs(event) - 1] += repeat if event > 0 else -repeat
        left = {answer.ledger.lines[at] for at, count in alive.items() if count}
        assert {one.name for one in left if one.account not in STAYS} <= {"loss", "logits"}
        assert answer.steps.reserved.expected >= answer.steps.allocated.expected > 0
