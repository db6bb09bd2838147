"""Trainers over preferences and sampled sequences by release, TRL's and LLaMA-Factory's, and losses of the Trainer and
TRL that read all logits of one sequence each: the largest instants of forward and of backward.

`tests/data/preference_traces.jsonl` holds what each release's code did on a CPU, seen by `tests/witness/storages.py`
(sizes as CUDA's allocator rounds them) in one step of a small Llama with recomputed layers: the trainer's own
`compute_loss`, unchanged, over models that accelerate prepared, with the Transformers of its time; of sampled sequences
also what scores them without a graph (`passed`). Left out of both sides are what lives inside kernels, but for the
contiguous input of a log-softmax and the exponentials of a logsumexp, and cuBLAS's workspaces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.facts.preference_row import Picked
from trainledger.facts.preferences import preference_of
from trainledger.facts.preferences_trl import DPO, GRPO, KTO, LIKELY
from trainledger.ledger.rank import Ledger

TRACES = Path(__file__).parent.parent / "data" / "preference_traces.jsonl"
ROWS = [json.loads(line) for line in TRACES.read_text().splitlines()]
MODEL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 8192, "tie_word_embeddings": False,
}  # fmt: skip
PRECISION = {
    "mixed": {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"},
    "bf16": {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"},
}
FORWARD = ("forward", "loss", "reference")
CLOSE = 0.003


def packages(row: dict[str, Any]) -> dict[str, str]:
    """Whose trainer ran, and the Transformers below it."""
    return {name: row[name] for name in ("transformers", "trl", "llamafactory") if name in row}


def ledger_of(row: dict[str, Any]) -> Ledger:
    versions = {"torch": "2.13.0", "accelerate": "1.15.0", **packages(row)}
    plan = plan_of(
        MODEL,
        task=row["task"],
        precision={**PRECISION[row["mode"]], "grad_scaler": False},
        optimizer={"name": "sgd", "implementation": "foreach", "grad_clip": None},
        batch={"micro_batch": row.get("micro_batch", 2), "sequence": 96, "loss_tokens": 48},
        roles={"policy": {}} if row["task"] == "grpo" else None,
        stack={
            "versions": versions,
            "recompute": {"kind": "full", "reentrant": False},
            "loss": "full-fp32",
            "options": row.get("options", {}),
        },
    )
    return estimate(plan).ledger


def counted(name: str) -> bool:
    return "cuBLAS" not in name and ("kernel" not in name or "log-softmax" in name)


def levels(ledger: Ledger) -> Iterator[tuple[str, int]]:
    """Every instant's bytes up to the end of the first step, and the moment that it belongs to."""
    level = 0
    sizes = [line.unit if counted(line.name) else 0 for line in ledger.lines]
    for segment in ledger.segments:
        step, _, moment = segment.moment.partition(": ")
        if step == "step 2":
            return
        for event in (event for _ in range(segment.repeat) for event in segment.events if event):
            level += sizes[event - 1] if event > 0 else -sizes[-event - 1]
            yield moment if step == "step 1" else "", level


def highest(ledger: Ledger) -> dict[str, int]:
    """Bytes at the largest instant of the first step's forward with its loss, and of its backward."""
    found = dict.fromkeys(("forward", "backward"), 0)
    for moment, level in levels(ledger):
        phase = "forward" if moment in FORWARD else moment.partition(" ")[0]
        if phase in found:
            found[phase] = max(found[phase], level)
    return found


@pytest.mark.parametrize(
    "row",
    ROWS,
    ids=lambda row: "-".join(
        (row["task"], *packages(row).values(), row["mode"], *row.get("options", ()), str(row.get("micro_batch", 2)))
    ),
)
def test_the_largest_instants(row: dict[str, Any]) -> None:
    ours = highest(ledger_of(row))
    assert ours == {phase: pytest.approx(row[phase], rel=CLOSE) for phase in ours}


@pytest.mark.parametrize("row", [row for row in ROWS if "passed" in row], ids=lambda row: f"{row['trl']}-{row['mode']}")
def test_a_pass_that_scores_sampled_sequences(row: dict[str, Any]) -> None:
    """Without a graph and without entropies: what it adds to what lies there before it."""
    seen = list(levels(ledger_of(row)))
    first = next(at for at, (moment, _) in enumerate(seen) if moment == "log-probs")
    found = max(level for moment, level in seen if moment == "log-probs") - seen[first - 1][1]
    assert found == pytest.approx(row["passed"], rel=CLOSE)


def test_every_way_of_reading_has_a_trace() -> None:
    """But TRL's kernel, which a CPU does not run, and what the logits' gather over ranks adds."""
    seen = {row.reading for one in ROWS if (row := preference_of(one["task"], "transformers", packages(one)))}
    needed = {row.reading for row in (*DPO, *KTO, *LIKELY, *GRPO) if row.reading}
    missing = {one for one in needed - seen if one.picked is not Picked.KERNEL}
    assert not missing
