"""What holds for every plan of torchtitan with experts, over its meshes and versions: it replays, its steps leave
nothing behind, and ranks together hold every expert once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.ledger.test_experts_permuted import LATENT
from tests.ledger.test_experts_torchtitan import MOE
from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.ledger.rank import rank_ledger
from trainledger.lines.line import Account
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

STAYS = (Account.WEIGHTS, Account.OPTIMIZER, Account.BUFFERS, Account.INPUTS, Account.WORKSPACE, Account.ENDS)
VERSIONS = ("d0cdb1433ad1", "2025-11-01", "0.2.2", "2026-03-10", "2026-04-10", "2026-05-25", "b5bcd76c66d0")
MESHES: tuple[dict[str, Any], ...] = (
    {}, {"ep": 4}, {"tp": 2, "sp": True}, {"tp": 2, "sp": True, "ep": 4}, {"tp": 2, "sp": True, "ep": 8},
    {"tp": 2, "sp": True, "ep": 2, "etp": 2},
)  # fmt: skip
WHOLE = "2026-05"  # experts are whole on each rank from here on
RECOMPUTES = ("none", "full", {"kind": "selective", "policy": "op"})


def plan_at(
    version: str, mesh: dict[str, Any], model: dict[str, Any], recompute: Any = "none", **parallel: Any
) -> Plan:
    stack = {"framework": "torchtitan", "versions": {"torchtitan": version}, "recompute": recompute}
    return plan_of(
        {**model, "num_key_value_heads": 4, "num_hidden_layers": 6},
        stack={**stack, "loss": "vocab-parallel" if mesh.get("tp") else "full-fp32"},
        precision={"weights": "fp32", "gradients": "fp32", "compute": "bf16", "reduce": "fp32"},
        parallel={"strategy": "fsdp2", "world": 8, "reshard_after_forward": True, **mesh, **parallel},
        batch={"micro_batch": 2, "sequence": 128, "accumulation": 4},
    )


def left(plan: Plan, rank: int | None = None) -> set[str]:
    """Names of what a run leaves behind; every line dies as often as it is born, and never before."""
    ledger = rank_ledger(plan, model_of(plan), "sm90", rank)
    alive: Counter[int] = Counter()
    for _, events, repeat, _ in ledger.segments:
        for _ in range(repeat):
            for event in events:
                alive[abs(event) - 1] += 1 if event > 0 else -1
                assert alive[abs(event) - 1] >= 0, ledger.lines[abs(event) - 1].name
    there = (ledger.lines[at] for at, count in alive.items() if count)
    return {one.name for one in there if one.account not in STAYS}


def runs(version: str, mesh: dict[str, Any]) -> bool:
    return "etp" not in mesh or version < WHOLE or not version.startswith(("2026", "b5"))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("recompute", RECOMPUTES, ids=str)
def test_steps_replay_and_leave_nothing(version: str, mesh: dict[str, Any], recompute: Any) -> None:
    if not runs(version, mesh):
        return
    for model in (MOE, LATENT):
        assert left(plan_at(version, mesh, model, recompute)) <= {"loss", "logits"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mesh", MESHES[:4], ids=str)
@pytest.mark.parametrize("recompute", RECOMPUTES, ids=str)
def test_compiled_steps_replay_and_leave_nothing(version: str, mesh: dict[str, Any], recompute: Any) -> None:
    for model in (MOE, LATENT):
        plan = plan_at(version, mesh, model, recompute)
        stack = plan.stack.model_copy(update={"compile": True})
        assert left(plan.model_copy(update={"stack": stack})) <= {"loss", "logits"}


@pytest.mark.parametrize("version", ["d0cdb1433ad1", "0.2.2", "b5bcd76c66d0"])
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "zb-v", "dualpipev"])
@pytest.mark.parametrize("mesh", [{}, {"ep": 4}, {"tp": 2, "sp": True, "ep": 4}], ids=str)
def test_pipelines_replay(version: str, schedule: str, mesh: dict[str, Any]) -> None:
    own = {"pp": 2, "world": 16, "schedule": schedule, "reshard_after_forward": False}
    plan = plan_at(version, mesh, MOE, **own, **({"vpp": 2} if schedule in ("zb-v", "dualpipev") else {}))
    kept = {"loss", "logits", "logits of a micro-batch that has run", "gradient of hidden states"}
    buffers = {"hidden states received", "gradients received"}
    for rank in (0, 8):
        assert left(plan, rank) <= kept | buffers


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_ranks_hold_every_expert_once(version: str, mesh: dict[str, Any]) -> None:
    if not runs(version, mesh):
        return
    ledger = estimate(plan_at(version, mesh, MOE)).ledger
    weights = [line for line in ledger.lines if line.account is Account.WEIGHTS and "mlp.experts" in line.name]
    whole = 3 * MOE["num_experts"] * MOE["moe_intermediate_size"] * MOE["hidden_size"]
    assert 8 * sum(line.unit // 4 for line in weights) == whole
