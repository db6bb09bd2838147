"""Whole steps of tiny models: the ledger's largest instant of every phase against the same run of real code.

What a trace of the calls cannot see is left out of the ledger here: temporaries inside kernels, workspaces, ends of
blocks. What the ledger leaves out is small and named in its assumptions: position ids and masks of packed sequences.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.plans import plan_of
from tests.witness.tracer import Trace, rounded, trace
from trainledger.ledger.book import Book
from trainledger.ledger.micro import Job
from trainledger.ledger.rank import extras_of, payload, trained_of, updates_of
from trainledger.ledger.run import run_of
from trainledger.ledger.step import compose
from trainledger.ledger.strategy import layout_of
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import fold
from trainledger.model.build import build

SLACK = 16 * 1024  # bytes of ids and scalars that the ledger does not list
BASE = {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
WIDE = {**BASE, "intermediate_size": 320}
GROUPED = {**WIDE, "num_key_value_heads": 2}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **GROUPED, "tie_word_embeddings": False},
    "qwen2 tied": {"model_type": "qwen2", **GROUPED, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **GROUPED, "head_dim": 32, "tie_word_embeddings": True},
    "gemma": {"model_type": "gemma", **GROUPED, "head_dim": 32, "pad_token_id": 0},
    "phi3": {"model_type": "phi3", **GROUPED, "tie_word_embeddings": False, "pad_token_id": 0},
    "gpt2": {"model_type": "gpt2", "vocab_size": 512, "n_positions": 64, "n_embd": 128, "n_layer": 3, "n_head": 4},
    "pythia": {"model_type": "gpt_neox", **WIDE},
    "opt": {"model_type": "opt", **BASE, "ffn_dim": 320, "max_position_embeddings": 64},
    "phi": {"model_type": "phi", **WIDE},
    "bert": {"model_type": "bert", **WIDE, "max_position_embeddings": 64, "architectures": ["BertForMaskedLM"]},
    "gemma3": {
        "model_type": "gemma3_text",
        **GROUPED,
        "head_dim": 32,
        "pad_token_id": 0,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}
MIXED = {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"}
PURE = {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"}
RECOMPUTE = {
    "none": "none",
    "full": {"kind": "full", "reentrant": False},
    "full-reentrant": {"kind": "full", "reentrant": True},
}
CASES = [
    *((model, "pure", "none", 1) for model in MODELS),
    *((model, "pure", "full", 1) for model in ("llama", "qwen2 tied", "gpt2", "opt")),
    *((model, "pure", "full-reentrant", 1) for model in ("llama", "qwen3")),
    *((model, "mixed", "none", 1) for model in ("llama", "gpt2", "qwen3")),
    *((model, "mixed", "full", 1) for model in ("llama", "gemma", "phi", "gpt2")),
    ("bert", "mixed", "full-reentrant", 1),
    ("gemma3", "mixed", "full", 1),
    ("llama", "pure", "none", 2),
    ("qwen2 tied", "pure", "none", 2),
]


def ours(config: dict[str, Any], precision: dict[str, Any], recompute: Any, accumulation: int) -> dict[str, int]:
    """The largest instant of every phase of step 2."""
    plan = plan_of(
        config,
        precision=precision,
        batch={"micro_batch": 2, "sequence": 64, "accumulation": accumulation},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0"},
            "recompute": recompute,
            "options": {"keep_outputs": True, "batch_tensors": ["input_ids", "labels"]},
        },
    )
    model = build(plan.keys())
    book = Book()
    job = Job(book, model, run_of(plan, "sm80"), trained_of(plan, model))
    updates, extras = updates_of(plan), extras_of(plan, "sm80")
    segments = compose(job, layout_of(plan, job, updates, extras.master, None), updates, extras)
    found: dict[str, int] = {}
    for moment in fold([_seen(line) for line in book.lines], segments):
        step, _, name = moment.name.partition(": ")
        phase = "forward" if name == "loss" else name.split(" ")[0]
        if step == "step 2":
            found[phase] = max(found.get(phase, 0), moment.allocated)
    return found


def _seen(line: Line) -> Line:
    hidden = line.account is Account.WORKSPACE or "kernel: " in line.name
    return replace(line, unit=0 if hidden else rounded(payload(line)))


def theirs(traced: Trace) -> dict[str, int]:
    """The same of the traced run's last step."""
    found: dict[str, int] = {}
    level = 0
    last = max(event.step for event in traced.events)
    for event in traced.events:
        level += rounded(event.size) if event.size > 0 else -rounded(-event.size)
        if event.step == last:
            found[event.phase] = max(found.get(event.phase, 0), level)
    return found


@pytest.mark.parametrize(("name", "kind", "recompute", "accumulation"), CASES)
def test_phases(name: str, kind: str, recompute: str, accumulation: int) -> None:
    precision = MIXED if kind == "mixed" else PURE
    mine = ours(MODELS[name], precision, RECOMPUTE[recompute], accumulation)
    traced = trace(
        MODELS[name],
        batch=2,
        sequence=64,
        weights=precision["weights"],
        autocast="bf16" if kind == "mixed" else None,
        recompute=recompute,
        accumulation=accumulation,
        steps=2,
        optimizer="adamw-foreach",
        head="MaskedLM" if name == "bert" else "CausalLM",
    )
    real = theirs(traced)
    for phase in ("forward", "backward", "optimizer"):
        assert abs(mine[phase] - real[phase]) <= SLACK, (phase, mine[phase], real[phase], mine[phase] - real[phase])
