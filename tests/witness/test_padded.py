"""Rows that hold padding: the mask that Transformers makes of them, what PyTorch's call makes of it in every layer, and
the kernel that then runs, against the real code with a mask that hides tokens."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.evidence.trace.families import FAMILIES, PRECISIONS, RECOMPUTE
from tests.plans import plan_of
from tests.witness import saved
from tests.witness.runs import VERSIONS, traced
from tests.witness.steps import phases
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.session import where_of
from trainledger.evidence.trace.record import Record
from trainledger.lines.line import Account
from trainledger.plan.schema import Plan

BATCH, SEQUENCE, LAYERS = 3, 384, 3
WINDOW = {"sliding_window": 128}
LORA: dict[str, Any] = {
    "adapter": {"kind": "lora", "r": 16, "dtype": "fp32", "targets": "all-linear"},
    "precision": {"weights": "bf16", "compute": "bf16", "gradients": "fp32"},
}
# family, attention, recompute, precision, changed keys of the model
CASES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("llama", "sdpa", "none", "pure", {}),
    ("llama", "sdpa", "full", "autocast", {}),
    ("llama", "sdpa", "none", "fp32", {}),
    ("llama", "mem-efficient", "full", "pure", {}),
    ("llama", "eager", "none", "autocast", {}),
    ("llama", "sdpa", "none", "pure", {"head_dim": 60}),  # of no fused kernel that takes a mask
    ("mistral", "sdpa", "none", "pure", WINDOW),
    ("mistral", "sdpa", "full", "autocast", WINDOW),
    ("gemma3_text", "sdpa", "none", "pure", WINDOW),
    ("gemma2", "eager", "full", "pure", WINDOW),
    ("gpt_oss", "eager", "none", "pure", {}),
    ("qwen3_moe", "sdpa", "full", "pure", {}),
    ("deepseek_v3", "sdpa", "none", "pure", {}),
    ("gpt2", "sdpa", "none", "autocast", {}),
    ("opt", "sdpa", "none", "pure", {}),
    ("bert", "sdpa", "none", "pure", {}),
    ("bert", "eager", "full", "autocast", {}),
)


def _plan(case: tuple[str, str, str, str, dict[str, Any]], sequence: int = SEQUENCE, **sections: Any) -> Plan:
    family, attention, recompute, precision, changed = case
    stack = {
        "versions": {**VERSIONS, "peft": "0.21.2"},
        "recompute": RECOMPUTE[recompute],
        "attention": attention,
        "allocator": {"expandable_segments": True},
        "options": {"batch_tensors": ["input_ids", "attention_mask", "labels"]},
    }
    batch = {"micro_batch": BATCH, "sequence": sequence, "accumulation": 1}
    given = {
        "precision": PRECISIONS[precision],
        "batch": batch,
        "stack": stack,
        "lengths": {"padded": True},
        **sections,
    }
    return plan_of({**FAMILIES[family], **changed}, **given)


def _traced(plan: Plan) -> Record:
    return traced(plan, where_of(job_of(plan)))


def _agree(plan: Plan, record: Record) -> None:
    found = trace_of(record, conf=read_conf(plan.stack.allocator))
    assert phases(estimate(plan).ledger.moments) == phases(found.moments)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join((*case[:4], *case[4])))
def test_saved_tensors_and_phases_agree(case: tuple[str, str, str, str, dict[str, Any]]) -> None:
    plan = _plan(case)
    record, dtype = _traced(plan), plan.precision.weights
    width, size = 2 if dtype == "bf16" else 4, FAMILIES[case[0]].get("hidden_size") or FAMILIES[case[0]]["n_embd"]
    hidden = (dtype, width * BATCH * SEQUENCE * size, (BATCH, SEQUENCE, size))
    ledger = estimate(plan).ledger
    assert not saved.differences(saved.of_ledger(ledger, LAYERS), saved.of_record(record), hidden)
    _agree(plan, record)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["h100-80gb", "a100-80gb", "v100-16gb"])
@pytest.mark.parametrize("sequence", [92, 96])  # rows of a mask that are aligned, and that are padded
def test_every_device_s_kernel(device: str, sequence: int) -> None:
    plan = _plan(("llama", "sdpa", "none", "pure", {}), sequence, device=device)
    record = _traced(plan)
    assert set(record.kernels) == {{"h100-80gb": "cudnn", "a100-80gb": "efficient", "v100-16gb": "math"}[device]}
    _agree(plan, record)


@pytest.mark.filterwarnings("ignore")
def test_an_adapter_reads_the_same_mask() -> None:
    pytest.importorskip("peft")
    plan = _plan(("llama", "sdpa", "full", "pure", {}), **LORA)
    _agree(plan, _traced(plan))


@pytest.mark.parametrize(("padded", "published"), [(False, 49.03), (True, 53.03)])
def test_a_layer_of_llama_3_8b(padded: bool, published: float) -> None:
    """Bytes per token and hidden element that a layer keeps, as traces of the whole model had them, one row of 2,048
    tokens: keys and values for every query head add 3, the mask's addend 1."""
    model = {**FAMILIES["llama"], "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
             "num_key_value_heads": 8}  # fmt: skip

    def kept(layers: int) -> int:
        stack = {"versions": VERSIONS, "attention": "sdpa"}
        batch = {"micro_batch": 1, "sequence": 2048}
        plan = plan_of({**model, "num_hidden_layers": layers}, batch=batch, stack=stack, lengths={"padded": padded})
        ledger = estimate(plan).ledger
        forward = next(one for one in ledger.moments if one.name == "step 1: forward")
        lines = ((ledger.lines[line], copies) for line, copies in forward.live)
        return sum(line.unit * copies for line, copies in lines if line.account is Account.ACTIVATIONS)

    assert (kept(3) - kept(2)) / (2048 * 4096) == pytest.approx(published, abs=0.005)
