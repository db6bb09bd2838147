"""Seconds that a trace takes: whole processes, for an 8B, a 70B and a 405B model, with and without recompute.

python bench/bench_trace.py
"""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

from trainledger.answer.trace import trace
from trainledger.evidence.trace.job import Job
from trainledger.evidence.trace.record import Record
from trainledger.evidence.trace.runner import run_job
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of

LLAMA = {"model_type": "llama", "vocab_size": 128256, "num_key_value_heads": 8, "tie_word_embeddings": False}
MODELS: dict[str, dict[str, Any]] = {
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
    "70B": {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64},
    "405B": {"hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128},
}
RECOMPUTE = ("none", "full")
SEQUENCE = 8192


def timed(name: str, recompute: str) -> dict[str, Any]:
    """One trace from the plan to the answer, and the parts of it."""
    data = {
        "model": {**LLAMA, **MODELS[name]},
        "task": "pretrain",
        "precision": {"weights": "bf16", "compute": "bf16", "gradients": "bf16"},
        "batch": {"micro_batch": 1, "sequence": SEQUENCE},
        "stack": {"framework": "transformers", "attention": "sdpa", "recompute": recompute},
        "device": "h100-80gb",
    }
    plan = draft_of(Document(data, {})).plan
    process: list[float] = []
    steps: list[float] = []

    def tracer(job: Job) -> Record:
        start = perf_counter()
        record = run_job(job)
        process.append(perf_counter() - start)
        steps.append(sum(record.seconds.values()))
        return record

    start = perf_counter()
    answer = trace(plan, tracer)
    return {
        "model": name,
        "recompute": recompute,
        "seconds": round(perf_counter() - start, 2),
        "process": round(process[0], 2),
        "two steps": round(steps[0], 2),
        "allocated": answer.steps.allocated.expected,
    }


if __name__ == "__main__":
    for model in MODELS:
        for kind in RECOMPUTE:
            print(json.dumps(timed(model, kind)), flush=True)
