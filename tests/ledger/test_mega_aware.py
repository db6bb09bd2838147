"""The precision-aware optimizer's states on a rank, against what FusedAdam keeps by the buffers' own rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_moe import EXPERTS
from tests.ledger.test_megatron import GPT, LLAMA, PRECISION, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.facts.dtypes import BF16, FP16, FP32
from trainledger.ledger.mega_buffers import parameters_of, wrap_of
from trainledger.ledger.mega_run import Rank, chunks_of
from trainledger.ledger.megatron import job_of
from trainledger.lines.line import Account
from trainledger.lines.param_buffers import buffers
from trainledger.lines.param_states import Kind, Stepped, states
from trainledger.model.build import model_of

AWARE = {"options": {"use_precision_aware_optimizer": True}}


def at(found: Estimate, moment: str, account: Account) -> int:
    one = next(each for each in found.ledger.moments if each.name == moment)
    lines = ((found.ledger.lines[line], copies) for line, copies in one.live)
    return sum(line.unit * copies for line, copies in lines if line.account is account)


@pytest.mark.parametrize("model", [GPT, {**LLAMA, **EXPERTS}], ids=["dense", "experts"])
@pytest.mark.parametrize(
    ("given", "stepped"),
    [
        ({}, Stepped(aware=True)),
        ({"master": "fp16"}, Stepped(master=FP16, aware=True)),
        ({"first": "bf16", "second": "bf16"}, Stepped((BF16, BF16), aware=True)),
    ],
)
def test_what_is_kept_is_what_fused_adam_keeps(model: dict[str, Any], given: dict[str, str], stepped: Stepped) -> None:
    moments = {name: given[name] for name in ("first", "second") if name in given}
    master = {"master": given["master"]} if "master" in given else {}
    plan = plan_of(model, precision=master, parallel={"dp": 4, **AWARE})
    fused = {"states": moments, "name": "adam", "implementation": "apex-fused"}
    plan = plan.model_copy(update={"optimizer": plan.optimizer.model_copy(update=fused)})
    job = job_of(plan, model_of(plan), "sm90")
    (chunk,) = chunks_of(plan, model["num_hidden_layers"], 0)
    parameters = [one for _, one in parameters_of(Rank(plan, job, (chunk,), 0), chunk)]
    held = states(buffers(parameters, wrap_of(plan, 0, 0, sum(one.elements for one in parameters))), 0, stepped)

    def blocks(*kinds: Kind) -> int:
        sizes = [one.dtype.bytes_of(size) for one in held if one.kind in kinds for size in one.sizes]
        return sum(-(-size // 512) * 512 for size in sizes)

    found = estimate(plan)
    assert at(found, "step 1: backward", Account.MASTER) == 0
    assert at(found, "step 2: forward", Account.MASTER) == blocks(Kind.MASTER)
    assert at(found, "step 2: forward", Account.OPTIMIZER) == blocks(Kind.FIRST, Kind.SECOND, Kind.SCALES)


def test_gradients_in_16_bits_are_read_as_they_are() -> None:
    low = {"gradients": "bf16", "reduce": "bf16"}
    plain, aware = (plan_of(GPT, precision=low, parallel={"dp": 4, **more}) for more in ({}, AWARE))
    names = {line.name for line in estimate(aware).ledger.lines}
    assert any(one.name.startswith("fp32 gradient of") for one in estimate(plain).ledger.lines)
    assert not any(name.startswith("fp32 gradient of") for name in names)


def test_states_in_less_are_raised_while_they_are_updated() -> None:
    plan = plan_of(GPT, precision={"master": "fp16"}, parallel={"dp": 1, **AWARE})
    lines = [one for one in estimate(plan).ledger.lines if one.name == "fp32 copies of a group's states"]
    total = sum(weight.elements for weight in model_of(plan).embeddings) + sum(
        weight.elements * block.count for block in model_of(plan).blocks for weight in block.weights
    )
    assert [one.unit for one in lines] == [pytest.approx(FP32.bytes_of(total), rel=0.001)]


def test_under_block_scaling_megatron_keeps_the_master_weights_itself() -> None:
    low = {**PRECISION, "compute": "fp8", "fp8": {"recipe": "blockwise"}}
    stack = {"kernels": ["te"], "attention": "fused", "options": {}}
    found = estimate(plan_of(LLAMA, precision=low, stack=stack, parallel={"dp": 4, **AWARE}))
    assert at(found, "step 1: backward", Account.MASTER) > 0
