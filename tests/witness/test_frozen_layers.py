"""Formula and trace of a model of which some layers are trained: saved tensors, and every phase's largest instant."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.evidence.trace.families import FAMILIES, PRECISIONS
from tests.plans import plan_of
from tests.witness import saved
from tests.witness.runs import RECOMPUTE, VERSIONS, traced
from tests.witness.steps import phases
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of, trace
from trainledger.evidence.trace.job import Job
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.session import where_of
from trainledger.evidence.trace.record import Record
from trainledger.plan.schema import Plan

LAYERS, HIDDEN, SEQUENCE = 3, 1024, 384
LAST, MIDDLE, FIRST = ["model.layers.2.*"], ["layers.1"], ["layers.0"]
CASES: list[tuple[str, list[str], str, str, int]] = [
    ("llama", LAST, "none", "pure", 1),
    ("llama", LAST, "full", "pure", 1),
    ("llama", LAST, "full-reentrant", "pure", 1),
    ("llama", MIDDLE, "none", "autocast", 1),
    ("llama", MIDDLE, "full", "autocast", 2),
    ("llama", FIRST, "none", "fp32", 1),
    ("llama", FIRST, "full-reentrant", "autocast", 1),
    ("llama", ["layers.[12]", "norm", "lm_head"], "none", "pure", 2),
    ("qwen2", ["layers.0.mlp", "layers.2"], "none", "pure", 1),
    ("gpt2", ["h.1", "h.2"], "full", "pure", 1),
    ("gpt_neox", ["layers.2"], "none", "pure", 1),
    ("qwen3_moe", MIDDLE, "none", "pure", 1),
    ("gemma3_text", ["layers.1", "layers.2"], "none", "pure", 1),  # its embedding, a head's too, is frozen
    ("gemma4_text", LAST, "full-reentrant", "pure", 1),
    ("gemma4_text", MIDDLE, "full", "autocast", 2),
    ("bert", ["layer.2", "cls"], "none", "pure", 1),
]


def plan(family: str, trainable: list[str], recompute: str, **sections: Any) -> Plan:
    stack = {"versions": VERSIONS, "recompute": RECOMPUTE[recompute], "allocator": {"expandable_segments": True}}
    return plan_of(FAMILIES[family], trainable=trainable, stack=stack, **sections)


def tracer(job: Job) -> Record:
    assert job.plan is not None
    return traced(job.plan, where_of(job))


@pytest.mark.parametrize(("family", "trainable", "recompute", "precision", "accumulation"), CASES)
def test_one_device(family: str, trainable: list[str], recompute: str, precision: str, accumulation: int) -> None:
    """To the byte."""
    batch = {"micro_batch": 1, "sequence": SEQUENCE, "accumulation": accumulation}
    given = plan(family, trainable, recompute, precision=PRECISIONS[precision], batch=batch)
    ours, record = estimate(given), traced(given, where_of(job_of(given)))
    assert record.parameters == (ours.parameters.total, ours.parameters.trainable)
    assert phases(ours.ledger.moments) == phases(trace_of(record, conf=read_conf(given.stack.allocator)).moments)
    if accumulation == 1 and precision == "pure":
        hidden = ("bf16", 2 * SEQUENCE * HIDDEN, (1, SEQUENCE, HIDDEN))
        assert not saved.differences(saved.of_ledger(ours.ledger, LAYERS), saved.of_record(record), hidden)


@pytest.mark.parametrize("recompute", ["full", "full-reentrant"])
@pytest.mark.parametrize(
    ("trainable", "precision"),
    [
        ("all", "pure"),
        (LAST, "pure"),
        (MIDDLE, "autocast"),
        (["layers.0", "layers.2"], "pure"),
        (["embed_tokens", "layers.2.mlp"], "pure"),
    ],
)
def test_checkpoints_of_trained_layers_alone(recompute: str, trainable: Any, precision: str) -> None:
    """As LLaMA-Factory's: the first trained layer's input is a leaf of the graph, frozen layers run as they are."""
    given = plan("llama", trainable, recompute, precision=PRECISIONS[precision], batch={"micro_batch": 3})
    stack = given.stack.model_copy(update={"versions": {**VERSIONS, "llamafactory": "0.9.6"}})
    given = given.model_copy(update={"stack": stack})
    record = traced(given, where_of(job_of(given)))
    theirs = phases(trace_of(record, conf=read_conf(given.stack.allocator)).moments)
    assert phases(estimate(given).ledger.moments) == theirs


@pytest.mark.parametrize(
    ("family", "trainable", "recompute"),
    [
        ("llama", MIDDLE, "none"),
        ("llama", ["layers.2", "norm", "lm_head"], "full-reentrant"),
        ("qwen2", FIRST, "full"),
        ("llama", ["embed_tokens", "layers.1.mlp"], "none"),
        ("gemma3_text", ["lm_head", "layers.1"], "full"),
    ],
)
def test_what_is_trained_in_fp32(family: str, trainable: list[str], recompute: str) -> None:
    """Beside frozen weights in 16 bits, under autocast, as LLaMA-Factory casts it."""
    precision = {"autocast": True, "gradients": "fp32"}
    given = plan(family, trainable, recompute, precision=precision, batch={"sequence": SEQUENCE})
    stack = given.stack.model_copy(update={"options": {"cast_trainable_params_to_fp32": True}})
    given = given.model_copy(update={"stack": stack})
    theirs = phases(trace_of(tracer(job_of(given)), conf=read_conf(given.stack.allocator)).moments)
    assert phases(estimate(given).ledger.moments) == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("trainable", [LAST, FIRST, ["layers.1", "lm_head"]])
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}])
def test_data_parallel(trainable: list[str], options: dict[str, bool]) -> None:
    """Buckets hold what is trained alone."""
    parallel = {"strategy": "ddp", "world": 4, "options": options}
    given = plan("llama", trainable, "none", parallel=parallel, batch={"micro_batch": 1, "sequence": SEQUENCE})
    ours, theirs = phases(estimate(given).ledger.moments), phases(trace(given, tracer).ledger.moments)
    first = ("step 1", "forward")  # the trace has what is sent at the start there
    assert {name: size for name, size in ours.items() if name != first} == {
        name: size for name, size in theirs.items() if name != first
    }


@pytest.mark.parametrize("trainable", [LAST, MIDDLE, ["layers.2", "lm_head"]])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("reshard", [True, False])
def test_sharded(trainable: list[str], recompute: str, reshard: bool) -> None:
    """FSDP2 gathers frozen layers too, and reduces none of them."""
    parallel = {"strategy": "fsdp2", "dp": 8, "reshard_after_forward": reshard}
    given = plan("llama", trainable, recompute, parallel=parallel, batch={"micro_batch": 1, "sequence": SEQUENCE})
    ours = phases(estimate(given).ledger.moments)
    theirs = phases(trace_of(tracer(job_of(given)), conf=read_conf(given.stack.allocator)).moments)
    assert max(ours.values()) == pytest.approx(max(theirs.values()), rel=1e-5)
    named = [name for name in theirs if name[1] in ("backward", "clip", "optimizer")]
    assert {name: ours[name] for name in named} == pytest.approx({name: theirs[name] for name in named}, rel=1e-5)
