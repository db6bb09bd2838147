"""Whole steps of tiny models: the ledger's largest instant of every phase against the same run of real code.

Left out are workspaces, and temporaries inside kernels, which both sides have by the same rule; the rest agrees to the
byte, as the allocator rounds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.witness.runs import INSIDE, Case, happened, record_of
from trainledger.evidence.trace.record import Record
from trainledger.facts.allocator import CUDA
from trainledger.ledger.book import Book
from trainledger.ledger.opening import Job
from trainledger.ledger.rank import extras_of, payload, trained_of, updates_of
from trainledger.ledger.run import run_of
from trainledger.ledger.step import compose
from trainledger.ledger.strategy import layout_of
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import fold
from trainledger.model.build import build
from trainledger.plan.schema import Plan

SCALAR = 512  # of micro-batches, each loss is divided: the ledger has one block for it and its part
BASE = {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
WIDE = {**BASE, "intermediate_size": 320}
GROUPED = {**WIDE, "num_key_value_heads": 2}
LATENT = {
    **WIDE, "num_key_value_heads": 4, "kv_lora_rank": 48, "q_lora_rank": 40, "v_head_dim": 16, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
    "moe_intermediate_size": 96, "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
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
    "bigcode": {
        "model_type": "gpt_bigcode", "vocab_size": 512, "n_positions": 64, "n_embd": 128, "n_layer": 3, "n_head": 4,
    },
    "roberta": {
        "model_type": "roberta", **WIDE, "max_position_embeddings": 66, "architectures": ["RobertaForMaskedLM"],
    },
    "electra": {
        "model_type": "electra", **WIDE, "embedding_size": 64, "max_position_embeddings": 64,
        "architectures": ["ElectraForMaskedLM"],
    },
    "distilbert": {
        "model_type": "distilbert", "vocab_size": 512, "dim": 128, "n_layers": 3, "n_heads": 4, "hidden_dim": 320,
        "max_position_embeddings": 64, "architectures": ["DistilBertForMaskedLM"],
    },
    "gpt-oss": {
        "model_type": "gpt_oss", **GROUPED, "head_dim": 32, "num_local_experts": 8, "num_experts_per_tok": 2,
        "sliding_window": 16, "tie_word_embeddings": False,
    },
    "deepseek v2": {"model_type": "deepseek_v2", **LATENT, "topk_method": "group_limited_greedy"},
    "deepseek v3": {"model_type": "deepseek_v3", **LATENT, "q_lora_rank": None},
    "gemma3": {
        "model_type": "gemma3_text",
        **GROUPED,
        "head_dim": 32,
        "pad_token_id": 0,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}  # fmt: skip
KINDS: dict[str, dict[str, str]] = {
    "pure": {},
    "eager": {"kernel": "eager"},
    "mixed": {"weights": "fp32", "autocast": "bf16"},
}
CASES = [
    *((model, "pure", "none", 1) for model in MODELS if model != "gpt-oss"),  # which has no kernel
    *((model, "pure", "full", 1) for model in ("llama", "qwen2 tied", "gpt2", "opt")),
    *((model, "pure", "full-reentrant", 1) for model in ("llama", "qwen3")),
    *((model, "mixed", "none", 1) for model in ("llama", "gpt2", "qwen3")),
    *((model, "mixed", "full", 1) for model in ("llama", "gemma", "phi", "gpt2")),
    *((model, "mixed", "full-reentrant", 1) for model in ("bert", "electra")),
    ("gemma3", "mixed", "full", 1),
    *(
        (f"deepseek {one}", kind, how, 1)
        for one in ("v2", "v3")
        for kind, how in (("mixed", "full"), ("eager", "none"))
    ),
    *((f"deepseek {one}", "mixed", "full-reentrant", 1) for one in ("v2", "v3")),
    ("deepseek v3", "pure", "full", 2),
    *(("gpt-oss", "eager", how, 1) for how in ("none", "full", "full-reentrant")),
    *((model, "eager", "full-reentrant", 1) for model in ("gpt2", "bigcode", "distilbert", "qwen2 tied")),
    *((model, "mixed", "full-reentrant", 1) for model in ("gpt2", "roberta", "opt")),
    ("llama", "pure", "none", 2),
    ("qwen2 tied", "pure", "none", 2),
]


def ours(plan: Plan) -> dict[str, int]:
    """The largest instant of every phase of step 2."""
    model = build(plan.keys())
    book = Book()
    job = Job(book, model, run_of(plan, "sm80"), trained_of(plan))
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
    hidden = line.account is Account.WORKSPACE or INSIDE in line.name
    return replace(line, unit=0 if hidden else CUDA.rounded(payload(line)))


def theirs(record: Record) -> dict[str, int]:
    """The same of the traced run."""
    found: dict[str, int] = {}
    level = 0
    for moment, events in record.stretches:
        step, _, name = moment.partition(": ")
        phase = "forward" if name == "loss" else name
        for one in happened(record, events):
            level += 0 if one.inside else one.size
            if step == "step 2":
                found[phase] = max(found.get(phase, 0), level)
    return found


@pytest.mark.parametrize(("name", "kind", "recompute", "accumulation"), CASES)
def test_phases(name: str, kind: str, recompute: str, accumulation: int) -> None:
    case = Case(
        batch=2, sequence=64, recompute=recompute, accumulation=accumulation, steps=2, optimizer="adamw", **KINDS[kind]
    )
    mine = ours(case.plan(MODELS[name]))
    real = theirs(record_of(MODELS[name], case))
    short = SCALAR if accumulation > 1 else 0
    assert mine == {phase: size - short for phase, size in real.items()}
