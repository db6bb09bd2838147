"""Limits of plans: the largest that fits fits, and one step more does not, by the estimate itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plans import LLAMA
from trainledger.answer.changed import Change, planned, with_changes
from trainledger.answer.estimate import estimate
from trainledger.answer.fit import Fit, Limit, Wanted, fit, knob_of
from trainledger.answer.unfrozen import last_layers
from trainledger.base.problems import InputError
from trainledger.base.units import GIB, MIB
from trainledger.facts.fit_knobs import CONFIDENCE, Knob
from trainledger.show.estimate import View
from trainledger.show.fit import document, sections
from trainledger.show.table import plain

BASE: dict[str, Any] = {
    "model": LLAMA,
    "task": "pretrain",
    "precision": {"weights": "bf16", "compute": "bf16", "gradients": "bf16"},
    "optimizer": {"name": "adamw", "implementation": "foreach"},
    "batch": {"micro_batch": 2, "sequence": 512},
    "stack": {"framework": "transformers", "versions": {"torch": "2.13.0", "transformers": "5.24.0"}},
    "device": {"name": "mine", "memory": 3 * GIB},
}
LORA = {"kind": "lora", "r": 8, "targets": ["q_proj", "v_proj"]}


def only(data: dict[str, Any], knob: Knob, **how: Any) -> Limit:
    (limit,) = fit(data, Wanted((knob,), how.pop("family", "")), **how).limits
    return limit


def outcome(data: dict[str, Any], changes: tuple[Change, ...]) -> str | None:
    return estimate(planned(data, changes)).verdict.outcome


@pytest.mark.parametrize("memory", [3600 * MIB, 4 * GIB, 5 * GIB + 17])
@pytest.mark.parametrize("knob", [Knob.MICRO_BATCH, Knob.SEQUENCE])
@pytest.mark.parametrize(
    "more",
    [
        (),
        (Change("stack.recompute", {"kind": "full"}),),
        (Change("parallel", {"strategy": "fsdp2", "world": 4, "dp": 4}),),
        (Change("stack.attention", "eager"),),
    ],
)
def test_what_is_found_fits_and_one_step_more_does_not(memory: int, knob: Knob, more: tuple[Change, ...]) -> None:
    data = with_changes(BASE, [Change("device.memory", memory), *more])
    limit = only(data, knob)
    assert limit.found.best is not None
    assert outcome(data, limit.found.best.changes) == "fits"
    assert limit.found.next is not None
    assert limit.found.next.value == int(limit.found.best.value) + limit.step
    assert outcome(data, limit.found.next.changes) != "fits"
    assert limit.found.next.moment


def test_the_expected_value_allows_no_less_than_the_high_end() -> None:
    sure, even = only(BASE, Knob.MICRO_BATCH), only(BASE, Knob.MICRO_BATCH, confidence=CONFIDENCE.expected)
    assert sure.found.best is not None
    assert even.found.best is not None
    assert int(even.found.best.value) >= int(sure.found.best.value)
    assert even.found.best.need.expected <= 3 * GIB
    for wrong in (0.4, 0.99):
        with pytest.raises(InputError, match="--confidence"):
            fit(BASE, Wanted(), wrong)


def test_an_adapter_s_rank() -> None:
    data = with_changes(BASE, [Change("adapter", LORA), Change("device.memory", 1900 * MIB)])
    limit = only(data, Knob.LORA_RANK)
    assert limit.found.best is not None
    assert outcome(data, limit.found.best.changes) == "fits"
    with pytest.raises(InputError, match=r"adapter\.r"):
        only(BASE, Knob.LORA_RANK)


EIGHT = {**BASE, "model": {**LLAMA, "num_hidden_layers": 8, "hidden_size": 1024, "intermediate_size": 4096}}


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize(
    "more",
    [
        (),
        (Change("stack.recompute", {"kind": "full", "reentrant": False}),),
        (Change("trainable", ["norm", "lm_head", "layers.0"]),),
        (Change("optimizer", {"name": "adamw", "implementation": "fused"}),),
        (Change("parallel", {"strategy": "ddp", "world": 2}),),
        (Change("parallel", {"strategy": "fsdp2", "world": 2}),),
        (Change("parallel", {"strategy": "zero2", "world": 2}),),
    ],
    ids=["plain", "recomputed", "with a head", "fused", "ddp", "fsdp2", "zero2"],
)
def test_the_most_layers_that_can_be_trained(share: float, more: tuple[Change, ...]) -> None:
    """One layer more does not fit, and the changed plan is a plan whose estimate fits."""
    data = with_changes(EIGHT, [Change("device.memory", 80 * GIB), *more])
    plan = planned(data)
    needs = [estimate(planned(data, [last_layers(plan, count)])).verdict.need for count in (1, 8)]
    least, most = (need[2] for need in needs if need)
    data = with_changes(data, [Change("device.memory", round(least + share * (most - least)))])
    found = fit(data, Wanted((Knob.LAYERS_UNFROZEN,)))
    (limit,) = found.limits
    best, more_than = limit.found.best, limit.found.next
    assert best is not None
    assert more_than is not None
    assert more_than.value == int(best.value) + 1
    assert outcome(data, best.changes) == "fits"
    assert outcome(data, more_than.changes) != "fits"
    assert more_than.moment
    kept = ["norm", "lm_head"] if "trainable" in data else []
    last = [f"model.layers.{at}" for at in range(8 - int(best.value), 8)]
    assert best.changes == (Change("trainable", [*kept, *last]),)
    written = document(found)["limits"][0]
    assert written["set"] == {"trainable": [*kept, *last]}
    assert f"model.layers.{8 - int(best.value)}" in written["notes"][-1]


@pytest.mark.parametrize(
    ("trainable", "own"),
    [("all", 8), ("none", 0), (["lm_head"], 0), (["layers.[67]"], 2), (["layers.7", "layers.5"], 1), (["layers"], 8)],
)
def test_the_plan_s_own_layers(trainable: Any, own: int) -> None:
    assert only(with_changes(EIGHT, [Change("trainable", trainable)]), Knob.LAYERS_UNFROZEN).own == own


def test_every_layer_may_be_trained() -> None:
    limit = only(with_changes(EIGHT, [Change("device.memory", 80 * GIB)]), Knob.LAYERS_UNFROZEN)
    assert limit.found.best is not None
    assert (limit.found.best.value, limit.found.next) == (8, None)
    assert "memory does not bound it" in " ".join(limit.notes)


@pytest.mark.parametrize(
    ("knobs", "axes", "values"),
    [
        ((Knob.LAYERS_UNFROZEN,), (Knob.LAYERS_UNFROZEN, Knob.SEQUENCE), {512, 1024, 2048}),
        ((Knob.MICRO_BATCH, Knob.LAYERS_UNFROZEN), (Knob.LAYERS_UNFROZEN, Knob.MICRO_BATCH), {1, 2, 4}),
    ],
)
def test_layers_beside_another_knob(knobs: tuple[Knob, ...], axes: tuple[Knob, ...], values: set[int]) -> None:
    data = with_changes(EIGHT, [Change("device.memory", 3 * GIB)])
    found = fit(data, Wanted(knobs, frontier=True))
    assert found.axes == axes
    assert values < {point.at for point in found.frontier}
    counts = [int(point.found.best.value) for point in found.frontier if point.found.best]
    assert len(counts) == len(found.frontier)
    assert counts == sorted(counts, reverse=True)
    for point in found.frontier:
        assert point.found.best is not None
        assert outcome(data, point.found.best.changes) == "fits"
        assert point.found.next is None or outcome(data, point.found.next.changes) != "fits"
    row = document(found)["frontier"][0]
    assert row["layers_unfrozen"] == counts[0]
    assert f"Frontier: the largest layers-unfrozen of each {axes[1].value}" in shown(found)


def test_layers_that_cannot_be_frozen() -> None:
    with pytest.raises(InputError, match="the plan has an adapter"):
        only({**EIGHT, "adapter": LORA}, Knob.LAYERS_UNFROZEN)
    own = {"framework": "torchtune", "versions": {"torch": "2.8.0", "torchtune": "0.6.1"}}
    limit = only(with_changes(EIGHT, [Change("stack", own)]), Knob.LAYERS_UNFROZEN)
    assert limit.found.best is None
    assert limit.found.next is not None
    assert "with torchtune" in limit.found.next.problem


def test_the_largest_model_of_a_family() -> None:
    data = with_changes(BASE, [Change("device", {"name": "a100-80gb"})])
    limit = only(data, Knob.MODEL, family="qwen2.5-")
    assert limit.found.best is not None
    assert limit.found.next is not None
    assert str(limit.found.best.value).startswith("qwen2.5-")
    assert outcome(data, limit.found.best.changes) == "fits"
    assert outcome(data, limit.found.next.changes) != "fits"
    with pytest.raises(InputError, match="--family"):
        only(data, Knob.MODEL, family="no-such")


def test_the_smallest_device() -> None:
    data = with_changes(BASE, [Change("batch.micro_batch", 256), Change("device", {"name": "h100-80gb"})])
    limit = only(data, Knob.DEVICE)
    best, less = limit.found.best, limit.found.next
    assert best is not None
    assert less is not None
    assert less.usable <= best.usable
    assert outcome(data, best.changes) == "fits"
    assert outcome(data, less.changes) != "fits"


def test_the_fewest_devices() -> None:
    wide = {**LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 16, "vocab_size": 32000}
    data = with_changes(
        BASE,
        [
            Change("model", {**wide, "num_hidden_layers": 12}),
            Change("parallel", {"strategy": "fsdp2", "world": 8}),
            Change("device.memory", 8 * GIB),
        ],
    )
    limit = only(data, Knob.DEVICES)
    assert limit.found.best is not None
    assert limit.found.next is not None
    assert limit.found.next.value == int(limit.found.best.value) - 1
    assert outcome(data, limit.found.best.changes) == "fits"
    assert outcome(data, limit.found.next.changes) != "fits"


def test_the_smallest_degree_keeps_the_ranks() -> None:
    wide = {**LLAMA, "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 32000}
    data = with_changes(
        BASE,
        [Change("model", wide), Change("parallel", {"strategy": "fsdp2", "world": 8}), Change("stack.loss", "full")],
    )
    data = with_changes(data, [Change("device.memory", 3500 * MIB)])
    found = only(data, Knob.TP).found
    best, less = found.best, found.next
    assert best is not None
    assert less is not None
    assert (best.value, less.value) == (8, 4)  # of two axes the mesh has two communicators more
    assert [planned(data, one.changes).parallel.world for one in (best, less)] == [8, 8]
    assert outcome(data, best.changes) == "fits"
    assert outcome(data, less.changes) != "fits"


@pytest.fixture(scope="module")
def found() -> Fit:
    return fit(BASE, Wanted(frontier=True))


def test_a_frontier_falls_and_every_point_of_it_is_the_last(found: Fit) -> None:
    values = [int(point.found.best.value) for point in found.frontier if point.found.best]
    assert len(values) == len(found.frontier) > 2
    assert values == sorted(values, reverse=True)
    point = found.frontier[1]
    assert point.found.best is not None
    assert point.found.next is not None
    assert outcome(BASE, point.found.best.changes) == "fits"
    assert outcome(BASE, point.found.next.changes) != "fits"


def test_learned_positions_bound_a_sequence() -> None:
    keys = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "vocab_size": 1000}
    limit = only(with_changes(BASE, [Change("model", keys), Change("batch.sequence", 128)]), Knob.SEQUENCE)
    assert limit.found.best is not None
    assert (limit.found.best.value, limit.found.next) == (256, None)
    assert "memory does not bound it" in " ".join(limit.notes)


def test_what_cannot_be_looked_for() -> None:
    with pytest.raises(InputError, match="device"):
        fit(with_changes(BASE, [Change("device", None)]), Wanted())
    with pytest.raises(InputError, match="grpo"):
        fit(with_changes(BASE, [Change("task", "grpo")]), Wanted())
    with pytest.raises(InputError, match="Did you mean micro-batch"):
        knob_of("micro_batch")


def test_nothing_fits() -> None:
    found = fit(with_changes(BASE, [Change("device.memory", 400 * MIB)]), Wanted())
    assert found.outcome == "does-not-fit"
    text = shown(found)
    assert "none fits" in text
    assert "does not fit" in text


def shown(found: Fit) -> str:
    return "\n\n".join(plain(one) for one in sections(found, View()) if one.text or one.rows)


def test_text_and_json_say_the_same(found: Fit) -> None:
    data, text = json.loads(json.dumps(document(found))), shown(found)
    for limit in data["limits"]:
        assert f"{limit['value']:,}" in text
        assert limit["next"]["moment"] in text
    for point in data["frontier"]:
        assert f"{point['sequence']:,}" in text


@pytest.mark.parametrize(
    "more", [{"save": {"disk": "1MB"}}, {"node": {"ranks": 1, "memory": "1TB", "used": "2TB"}}], ids=["disk", "host"]
)
def test_what_does_not_fit_elsewhere_has_no_limit(more: dict[str, Any]) -> None:
    data = {**BASE, "device": {"name": "mine", "memory": 4 * GIB}, **more}
    assert only({**data, "save": None, "node": None}, Knob.MICRO_BATCH).found.best
    found = fit(data, Wanted((Knob.MICRO_BATCH,)))
    assert (found.outcome, found.now.fits) == ("does-not-fit", False)
    assert found.now.margin > 0
    assert found.now.elsewhere in "\n".join(map(plain, sections(found, View("GiB"))))
    assert document(found)["plan"]["elsewhere"] == found.now.elsewhere
    assert outcome(data, ()) == "does-not-fit"


def test_a_place_with_room_is_no_wall() -> None:
    limits = [only({**BASE, "save": {"disk": disk}}, Knob.MICRO_BATCH) for disk in ("10TB", None)]
    assert limits[0].found.best == limits[1].found.best
