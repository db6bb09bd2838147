"""A model's outputs after its forward: copies in fp32, and keys and values that stay under recompute."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32
from trainledger.facts.outputs import RAISED_OUTPUTS
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of
from trainledger.ledger.book import Book
from trainledger.ledger.outputs import Output, ended
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.ledger.run import run_of
from trainledger.lines.line import Account
from trainledger.model.build import build
from trainledger.plan.schema import Plan

TOKENS, VOCAB, HIDDEN, LAYERS, HEAD = 2 * 1024, 512, 256, 6, 64
TRAINER = {"torch": "2.4.1", "transformers": "4.48.1", "accelerate": "1.0.1"}


def plan(autocast: bool = False, **stack: Any) -> Plan:
    given = {
        "model": {
            "model_type": "gpt_bigcode", "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 4, "vocab_size": VOCAB,
            "n_positions": 1024, "multi_query": True,
        },
        "precision": {"weights": "fp32" if autocast else "bf16", "compute": "bf16", "autocast": autocast},
        "optimizer": {"name": "adamw", "implementation": "foreach"},
        "batch": {"micro_batch": 2, "sequence": 1024, "accumulation": 1},
        "stack": {
            "framework": "transformers", "attention": "flash", "loss": "full-fp32", "versions": TRAINER,
            "recompute": {"kind": "full", "reentrant": True}, **stack,
        },
        "device": "a100-80gb",
    }  # fmt: skip
    return draft_of(Document(given, {(): "test"})).plan


def ledger(given: Plan) -> Ledger:
    return rank_ledger(given, build(given.keys()), "sm80")


def top(of: Ledger, moment: str) -> int:
    return max(one.allocated for one in of.moments if one.name == f"step 2: {moment}")


@pytest.mark.parametrize(
    ("stack", "layers"),
    [
        ({}, LAYERS),
        ({"recompute": {"kind": "full", "reentrant": False}}, LAYERS),
        ({"options": {"use_cache": False}}, 0),
        ({"versions": TRAINER | {"transformers": "4.53.3"}}, 0),
    ],
)
def test_recompute_keeps_keys_and_values_that_a_model_returns(stack: dict[str, Any], layers: int) -> None:
    lines = ledger(plan(**stack)).lines
    kept = [line for line in lines if line.name.endswith("keys and values")]
    # one storage holds queries, keys and values of a layer
    assert [line.unit for line in kept] == [2 * TOKENS * (HIDDEN + 2 * HEAD)] * bool(layers)
    found = ledger(plan(**stack))
    number = next((at for at, line in enumerate(found.lines) if line.name.endswith("keys and values")), -1)
    live = {one.name: dict(one.live).get(number, 0) for one in found.moments}
    assert live["step 2: loss"] == layers
    assert live["step 2: backward of the loss"] == 0


def test_kept_keys_raise_the_loss_alone() -> None:
    kept, free = ledger(plan()), ledger(plan(options={"use_cache": False}))
    assert top(kept, "loss") - top(free, "loss") == LAYERS * 2 * TOKENS * (HIDDEN + 2 * HEAD)
    assert top(kept, "backward of layer 0") == top(free, "backward of layer 0")


def test_outputs_in_sixteen_bits_are_copied_before_they_die() -> None:
    dims = (Axis(Dim.TOKENS, 1024),)
    book, run = Book(), run_of(plan(autocast=True), "sm80")
    logits, cache = (
        Output(book.tensor(Account.LOGITS, name, dims, dtype, RAISED_OUTPUTS.source), dims, dtype)
        for name, dtype in (("logits", BF16), ("cache", FP32))
    )
    events = ended(book, run, logits, [cache])
    copy = events[0] - 1
    assert book.lines[copy].dtype == FP32
    assert events == (copy + 1, -logits.line - 1, -cache.line - 1, -copy - 1)


@pytest.mark.parametrize("versions", [TRAINER, {name: TRAINER[name] for name in ("torch", "transformers")}])
def test_only_accelerate_copies(versions: dict[str, str]) -> None:
    found = ledger(plan(autocast=True, versions=versions))
    copies = [line for line in found.lines if line.name == "logits in fp32"]
    assert len(copies) == ("accelerate" in versions)
    assert not [line for line in ledger(plan(versions=versions)).lines if line.name == "logits in fp32"]


@pytest.mark.parametrize("static", [False, True])
def test_outputs_are_cloned_where_unused_parameters_are_looked_for(static: bool) -> None:
    made = plan()
    options = {"find_unused_parameters": True, "static_graph": static}
    parallel = made.parallel.model_copy(update={"strategy": "ddp", "options": options})
    found = ledger(made.model_copy(update={"parallel": parallel}))
    names = [line.name for line in found.lines]
    assert ("logits, cloned" in names) is not static
    if not static:
        old, new = names.index("logits") + 1, names.index("logits, cloned") + 1
        events = [event for one in found.segments if one.moment == "step 1: loss" for event in one.events]
        assert [event for event in events if event in (new, -old, -new)] == [new, -old, -new]


def test_a_clone_is_made_of_what_was_raised_to_fp32() -> None:
    dims = (Axis(Dim.TOKENS, 1024),)
    book, run = Book(), run_of(plan(autocast=True), "sm80")
    logits = Output(book.tensor(Account.LOGITS, "logits", dims, BF16, RAISED_OUTPUTS.source), dims, BF16)
    events = ended(book, run, logits, [], logits)
    raised, clone = events[0], events[2]
    assert book.lines[clone - 1].dtype == FP32
    assert events == (raised, -logits.line - 1, clone, -raised, -clone)
