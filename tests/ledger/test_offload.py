"""FSDP with its weights offloaded: what lies on the host, and what still passes through the device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError
from trainledger.lines.line import Account, Place

MIXED = {"weights": "fp32", "compute": "bf16", "autocast": False, "gradients": "fp32"}
CPU = {"params": "cpu", "optimizer": "cpu"}
RANKS = 4
HIDDEN, INNER, WORDS, LAYERS = 256, 640, 1024, 3
LAYER = (
    2 * HIDDEN + 2 * HIDDEN * HIDDEN + 2 * HIDDEN * 128 + 3 * HIDDEN * INNER
)  # norms, q and o, k and v, feed-forward
ROOT = 2 * WORDS * HIDDEN + HIDDEN


def made(strategy: str, offload: dict[str, str] | None = None, **sections: Any) -> Estimate:
    return estimate(
        plan_of(
            precision={**MIXED, **sections.pop("precision", {})},
            parallel={"strategy": strategy, "dp": RANKS, "options": sections.pop("options", {})},
            offload=offload or {},
            **sections,
        )
    )


def of(found: Estimate, account: Account) -> dict[str, tuple[int, int]]:
    """Bytes and copies of the host's lines of an account, by name."""
    return {line.name: (line.unit, count) for line, count in found.ledger.host if line.account is account}


def test_fsdp2_pins_every_shard_and_gradient_by_itself() -> None:
    found = made("fsdp2", CPU)
    weights, gradients = of(found, Account.WEIGHTS), of(found, Account.GRADIENTS)
    assert set(weights) == set(gradients)
    up = "model.layers.*.mlp.up_proj.weight"
    assert weights[up] == gradients[up] == (1 << 18, LAYERS)  # 163,840 B of fp32 rows, rounded up to a power of two
    states = of(found, Account.OPTIMIZER)
    assert states[f"first_moment values of {up}"] == (INNER * HIDDEN // RANKS * 4, LAYERS)  # not page-locked
    assert all(line.place is Place.HOST for line, _ in found.ledger.host)


def test_fsdp1_pins_a_flat_shard_and_a_gradient_of_each_unit() -> None:
    found = made("fsdp1", CPU, options={"use_orig_params": False})
    part = LAYER // RANKS * 4
    assert of(found, Account.WEIGHTS) == of(found, Account.GRADIENTS)
    assert of(found, Account.WEIGHTS)["flat parameter of model.layers"] == (1 << (part - 1).bit_length(), LAYERS)
    assert (
        sum(unit * count for unit, count in of(found, Account.OPTIMIZER).values())
        == 2 * 4 * (LAYERS * LAYER + ROOT) // RANKS
    )


@pytest.mark.parametrize("strategy", ["fsdp1", "fsdp2"])
def test_a_shard_is_copied_whole_and_cast_before_the_gather(strategy: str) -> None:
    """Both dtypes of a shard are there at once: of one parameter under FSDP2, of the unit under FSDP1."""
    found = made(strategy, CPU).ledger
    names = {line.name: line.unit for line in found.lines}
    events = [
        (found.lines[abs(e) - 1].name, e > 0)
        for part in found.segments
        if "forward" in part.moment
        for e in part.events
    ]
    if strategy == "fsdp1":
        brought, cast = "shard of model.layers, from the host", "cast of the shard of model.layers"
        order = [
            (cast, True),
            (brought, True),
            (brought, False),
            ("gathered weights of model.layers", True),
            (cast, False),
        ]
    else:
        up = "model.layers.*.mlp.up_proj.weight"
        brought, cast = f"{up} (shard, from the host)", f"{up} (shard, cast)"
        order = [(brought, True), (cast, True), (brought, False)]
    assert names[cast] < names[brought] <= 2 * names[cast]  # each rounded by itself
    at = events.index(order[0])
    assert events[at : at + len(order)] == order


@pytest.mark.parametrize("strategy", ["fsdp1", "fsdp2", "fsdp1-noshard"])
def test_no_state_stays_on_the_device(strategy: str) -> None:
    found = made(strategy, CPU, optimizer={"grad_clip": 1.0}).ledger
    for moment in found.moments:
        accounts = {found.lines[line].account for line, _ in moment.live}
        assert not accounts & {Account.OPTIMIZER, Account.MASTER, Account.STEP, Account.CLIP, Account.WEIGHTS}


def test_fsdp1_names_reduced_gradients_to_the_end_of_backward() -> None:
    """`_saved_grad_shard` is let go as the parameters are finalised; FSDP2 lets each go at once."""
    flat, rows = (made(strategy, CPU).ledger for strategy in ("fsdp1", "fsdp2"))
    names = [flat.lines[line].name for moment in flat.moments for line, _ in moment.live if "backward" in moment.name]
    assert "gradients of model.layers, this rank's part" in names
    assert not [line for line in rows.lines if line.account is Account.GRADIENTS and "part" in line.name]
    last = [flat.lines[abs(event) - 1].name for event in flat.segments[-1].events if event < 0]
    assert "gradients of model.layers, this rank's part" in last


@pytest.mark.parametrize(
    ("strategy", "offload", "sections", "path"),
    [
        ("fsdp2", {"optimizer": "cpu"}, {}, "offload.optimizer"),
        ("fsdp2", {"params": "nvme", "optimizer": "cpu"}, {}, "offload.params"),
        ("fsdp2", {"params": "cpu", "activations": "cpu"}, {}, "offload.activations"),
        ("fsdp1", CPU, {"batch": {"accumulation": 2}}, "batch.accumulation"),
        ("fsdp2", CPU, {"optimizer": {"in_backward": True}}, "optimizer.in_backward"),
        ("fsdp1", CPU, {"optimizer": {"name": "adamw-8bit"}}, "optimizer.name"),
        ("fsdp2", CPU, {"precision": {"main_gradients": "bf16"}}, "precision.main_gradients"),
        ("ddp", {"params": "cpu"}, {}, "offload.params"),
    ],
)
def test_what_fsdp_does_not_offload_is_refused(
    strategy: str, offload: dict[str, str], sections: dict[str, Any], path: str
) -> None:
    with pytest.raises(InputError) as caught:
        made(strategy, offload, **sections)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_fsdp1_accumulates_whole_gradients_on_the_device() -> None:
    found = made("fsdp1", CPU, batch={"accumulation": 2}, options={"no_sync": True})
    assert found.peak.allocated.expected > made("fsdp1", CPU).peak.allocated.expected


def test_a_note_says_that_the_optimizer_goes_along() -> None:
    alone, both = (made("fsdp2", given).notes.warnings for given in ({"params": "cpu"}, CPU))
    assert [note for note in alone if note.startswith("offload.params")]
    assert not [note for note in both if note.startswith("offload.params")]
