"""ZeRO-3 of models that were built whole: their load, and weights that nodes hold as they were gathered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_wrapper import RANKS, moment, run, sizes
from tests.plans import LLAMA
from trainledger.allocator.conf import DEFAULT
from trainledger.answer.replayed import replayed
from trainledger.ledger.rank import Ledger
from trainledger.lines.line import Account
from trainledger.lines.stream import EMPTY, total

NOTHING_STAYS = {
    "stage3_param_persistence_threshold": 0,
    "stage3_prefetch_bucket_size": 0,
    "stage3_max_reuse_distance": 0,
    "reduce_bucket_size": 1,
}


def whole(version: str = "0.19.8", model: dict[str, Any] = LLAMA, **sections: Any) -> Ledger:
    options = {"zero_init": False, "reduce_bucket_size": 1000, **sections.pop("options", {})}
    return run("zero3", version, model, parallel={"options": options}, **sections)[1]


def gathered(ledger: Ledger, name: str) -> int:
    """Bytes of gathered weights that are live when a moment is at its largest."""
    live = [(line, n) for line, n in moment(ledger, name).live if ledger.lines[line].account is Account.GATHERED]
    return total(ledger.lines, live)


def test_a_model_built_whole_lies_on_the_device_before_it_is_spread() -> None:
    every = sizes()
    ledger = whole()
    live = [(line, n) for line, n in ledger.moments[0].live if ledger.lines[line].account is Account.WEIGHTS]
    first = -(-every[0] // RANKS)
    assert total(ledger.lines, live) == 2 * (sum(every) + first)
    _, spread = run("zero3", parallel={"options": {"reduce_bucket_size": 1000}})
    assert spread.moments[0].allocated < ledger.moments[0].allocated
    assert [one.allocated for one in spread.moments[1:]] == [one.allocated for one in ledger.moments[1:]]


def test_weights_on_the_host_leave_no_parts_behind_and_no_flat_tensor() -> None:
    ledger = whole(offload={"params": "cpu", "optimizer": "cpu"})
    live = [(line, n) for line, n in ledger.moments[0].live if ledger.lines[line].account is Account.WEIGHTS]
    assert total(ledger.lines, live) == 2 * sum(sizes())
    assert not any(EMPTY in segment.events for segment in ledger.segments)


def test_what_the_load_cached_is_given_back() -> None:
    """The whole model's blocks are gone when the steps begin, and with them what was reserved."""
    found = {
        init: replayed(run("zero3", parallel={"options": {"zero_init": init}})[1], DEFAULT) for init in (True, False)
    }
    spread, loaded = found[True], found[False]
    assert spread is not None
    assert loaded is not None
    assert loaded.reserved == spread.reserved
    assert loaded.most >= spread.most


@pytest.mark.parametrize(
    ("version", "options", "holds"),
    [
        ("0.19.3", {"zero_init": False}, True),
        ("0.19.4", {"zero_init": False}, False),
        ("0.19.3", {}, False),
        ("0.19.8", {"memory_efficient_linear": False}, True),
    ],
)
def test_who_holds_gathered_weights_from_forward_to_backward(
    version: str, options: dict[str, bool], holds: bool
) -> None:
    """torch's linear saves the weight as it was gathered: all but the embedding's, which is looked up, and norms'."""
    _, ledger = run("zero3", version, parallel={"options": {**NOTHING_STAYS, **options}})
    every = 2 * (
        sum(size for size in sizes() if size > LLAMA["hidden_size"]) - LLAMA["vocab_size"] * LLAMA["hidden_size"]
    )
    for step in ("step 1", "step 2"):
        assert (gathered(ledger, f"{step}: loss") >= every) is holds
        assert gathered(ledger, f"{step}: optimizer") == 0


@pytest.mark.parametrize(("reentrant", "copies"), [(False, 2), (True, 1)])
def test_a_checkpoint_without_reentrance_holds_what_it_gathered_until_it_is_read(reentrant: bool, copies: int) -> None:
    """It detaches what nodes save, parameters too: a weight that was let go is gathered a second time."""
    recompute = {"recompute": {"kind": "full", "reentrant": reentrant}}
    _, ledger = run("zero3", parallel={"options": NOTHING_STAYS}, stack=recompute)
    assert most(ledger, "model.layers.*.mlp.up_proj.weight (whole)") == copies


def most(ledger: Ledger, name: str) -> int:
    """How many copies of a line are live at once, at most."""
    here = high = 0
    for segment in ledger.segments:
        for event in segment.events * segment.repeat:
            if event and ledger.lines[abs(event) - 1].name == name:
                here += 1 if event > 0 else -1
                high = max(high, here)
    return high
