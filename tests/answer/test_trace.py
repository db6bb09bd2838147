"""The estimate by trace: what is refused, what it says, and the verdict."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.answer.tables import amounts, by_account, entries, moment_of
from trainledger.answer.trace import check_traceable, job_of, trace
from trainledger.base.dims import Dim
from trainledger.base.problems import RefusedError
from trainledger.evidence.trace.job import Job
from trainledger.evidence.trace.record import Record
from trainledger.lines.line import Account

pytestmark = pytest.mark.filterwarnings("ignore")


def tracer(job: Job) -> Record:
    """In this process: the tests of the runner start another."""
    from trainledger.evidence.trace.live.plan_run import run_plan
    from trainledger.evidence.trace.live.session import where_of

    assert job.plan is not None
    return run_plan(job.plan, where_of(job))


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"stack": {"compile": True}}, "stack.compile"),
        ({"stack": {"attention": "flex"}}, "stack.attention"),
        ({"stack": {"loss": "full"}}, "stack.loss"),
        ({"optimizer": {"name": "adamw-8bit", "implementation": None}}, "optimizer.name"),
        ({"quantization": {"kind": "nf4"}}, "quantization"),
        ({"stack": {"kernels": ["liger"]}}, "stack.kernels"),
        ({"parallel": {"strategy": "fsdp1-noshard", "world": 2}}, "parallel.strategy"),
        ({"offload": {"optimizer": "cpu"}}, "offload.optimizer"),
        ({"offload": {"places": {"optimizer_states": "remote"}}}, "offload.places"),
        ({"roles": {"reference": {}}}, "roles"),
    ],
)
def test_refusals_are_by_name(sections: dict, path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_traceable(plan_of(**sections))
    assert [problem.path for problem in refused.value.problems] == [path]


def test_a_plan() -> None:
    plan = plan_of(precision={"weights": "fp32", "autocast": True, "gradients": "fp32"})
    answer = trace(plan, tracer)
    accounts = {row.account for row in by_account(entries(answer.ledger, moment_of(answer, "step 2: loss")))}
    assert {Account.WEIGHTS, Account.CASTS, Account.LOGITS, Account.OPTIMIZER, Account.INPUTS} <= accounts
    assert answer.parameters == estimate(plan).parameters
    assert answer.verdict.outcome == "fits"
    assert {one.name: one.basis for one in amounts(answer)}["reserved"] == "counted"
    warned = " ".join(answer.notes.warnings)
    assert "torch 2.14.1, traced with torch" in warned
    assert "attention ran flash 6 times" in warned


def test_what_a_trace_does_not_look_at_is_said() -> None:
    sections = {"evaluation": {"batches": 2}, "node": {"ranks": 1, "memory": "1MiB"}, "save": {"limit": 2}}
    answer = trace(plan_of(**sections, lengths={"longest": 9}), tracer)
    said = [note.partition(":")[0] for note in answer.notes.uncounted]
    assert [name for name in said if name in sections] == ["evaluation", "save", "node"]
    inputs = [line for line in answer.ledger.lines if line.account is Account.INPUTS]
    assert {9} == {axis.size for line in inputs for axis in line.dims if axis.dim is Dim.SEQUENCE}


def test_a_family_without_a_program() -> None:
    """Any model that Transformers can build."""
    config = {
        "model_type": "stablelm", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512,
    }  # fmt: skip
    answer = trace(plan_of(config), tracer)
    assert answer.parameters.total == sum(
        line.unit * 0 + _elements(line) * copies
        for number, copies in answer.ledger.moments[0].live
        if (line := answer.ledger.lines[number]).account is Account.WEIGHTS
    )


def _elements(line) -> int:
    total = 1
    for axis in line.dims:
        total *= axis.size
    return total


def test_buckets_are_joined() -> None:
    alone, many = (
        trace(plan_of(LLAMA, parallel={"strategy": strategy, "world": world}), tracer)
        for strategy, world in (("none", 1), ("ddp", 4))
    )
    difference = many.steps.allocated.expected - alone.steps.allocated.expected
    gradients = alone.parameters.total * 2
    assert gradients <= difference <= gradients + 2**21
    options = {"gradient_as_bucket_view": True}
    views = trace(plan_of(LLAMA, parallel={"strategy": "ddp", "world": 4, "options": options}), tracer)
    ends = [
        next(one.allocated for one in found.ledger.moments if one.name == "step 2: optimizer")
        for found in (alone, views, many)
    ]
    assert abs(ends[0] - ends[1]) < 2**21  # the buckets stand for the gradients
    assert gradients <= ends[2] - ends[1] <= gradients + 2**21


def test_the_device_is_told() -> None:
    job = job_of(plan_of(device="h100-80gb"))
    assert (job.architecture, job.workspace, job.processors) == ("sm90", 32 * 2**20, (132, 2048))
