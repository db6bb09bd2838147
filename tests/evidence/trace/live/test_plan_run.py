"""The script of a plan: dtypes, trained weights, recompute, accumulation, optimizers, adapters."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.plans import LLAMA, plan_of
from trainledger.answer.trace import job_of
from trainledger.base.problems import TraceError
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.plan_run import run_plan
from trainledger.evidence.trace.live.session import where_of
from trainledger.evidence.trace.record import Record
from trainledger.lines.line import Account

pytestmark = pytest.mark.filterwarnings("ignore")


def traced(**sections: Any) -> Record:
    plan = plan_of(**sections)
    return run_plan(plan, where_of(job_of(plan)))


def of(record: Record, account: Account) -> int:
    return sum(one.size for one in record.births if one.account == account)


def test_states_of_pure_bf16() -> None:
    record = traced()
    weights = of(record, Account.WEIGHTS)
    assert weights == 2 * record.parameters[0]
    assert of(record, Account.OPTIMIZER) == 2 * weights
    assert of(record, Account.GRADIENTS) == 2 * weights  # of both steps
    assert of(record, Account.STEP) >= weights


def test_part_is_trained() -> None:
    for pattern in ("*.layers.2.*", "layers.2", "model.layers.2.*"):
        record = traced(trainable=[pattern])
        every, trained = record.parameters
        assert 0 < trained < every / 3
        assert of(record, Account.OPTIMIZER) == 2 * 2 * trained


def test_either_name_of_a_tied_weight_trains_it() -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    for name in ("embed_tokens", "lm_head"):
        assert traced(model=tied, trainable=[name]).parameters[1] == LLAMA["vocab_size"] * LLAMA["hidden_size"]


def test_recomputed_tensors_have_their_account() -> None:
    assert of(traced(), Account.RECOMPUTED) == 0
    full = traced(stack={"recompute": {"kind": "full", "reentrant": False}})
    assert of(full, Account.RECOMPUTED) > of(full, Account.ACTIVATIONS) > 0


def test_micro_batches() -> None:
    record = traced(batch={"micro_batch": 1, "sequence": 512, "accumulation": 3})
    assert [stretch.moment for stretch in record.stretches].count("step 1: backward") == 3
    assert len(trace_of(record).moments) == 9


@pytest.mark.parametrize(("name", "states"), [("sgd", 0), ("sgd-momentum", 1), ("adam", 2), ("rmsprop", 1)])
def test_optimizers(name: str, states: int) -> None:
    record = traced(optimizer={"name": name, "implementation": "foreach"})
    assert of(record, Account.OPTIMIZER) == states * of(record, Account.WEIGHTS)


def test_scaled_loss_and_clipping() -> None:
    record = traced(
        precision={"weights": "fp32", "compute": "fp16", "autocast": True, "gradients": "fp32", "grad_scaler": True},
        optimizer={"grad_clip": 1.0},
        device="t4",
    )
    assert of(record, Account.CLIP) > 0
    assert of(record, Account.CASTS) > 0


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"trainable": "none"}, "nothing is trained"),
        ({"stack": {"recompute": {"kind": "selective", "modules": ["mlp"]}}}, "full and none can be traced"),
        ({"optimizer": {"name": "adamw", "in_backward": True}}, "in_backward"),
    ],
)
def test_refusals(sections: dict[str, Any], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        traced(**sections)


def test_a_model_that_cannot_be_built() -> None:
    with pytest.raises(TraceError, match="Transformers cannot build the model"):
        traced(model={"model_type": "llama", "hidden_size": 30, "num_attention_heads": 4, "vocab_size": -4})


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_adapter(dropout: float) -> None:
    pytest.importorskip("peft")
    targets = ["q_proj", "v_proj"]
    record = traced(adapter={"kind": "lora", "r": 8, "targets": targets, "dtype": "fp32", "dropout": dropout})
    trained = 3 * 8 * (256 + 256 + 256 + 128)
    assert record.parameters[1] == trained
    assert of(record, Account.OPTIMIZER) == 2 * 4 * trained
    assert any(one.op == "native_dropout" for one in record.births) is bool(dropout)


def test_a_module_that_is_trained_whole_keeps_its_dtype() -> None:
    """PEFT raises an adapter's own weights, not copies of modules."""
    pytest.importorskip("peft")
    adapter = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "fp32", "train_extra": ["lm_head"]}
    record = traced(adapter=adapter)
    assert of(record, Account.OPTIMIZER) == 2 * (4 * 3 * 8 * (256 + 256) + 2 * 1024 * 256)
