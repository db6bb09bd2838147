"""FSDP1 around the pieces of a micro-batch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32
from trainledger.facts.sharding import FSDP1
from trainledger.ledger.fsdp1_how import EARLY, Flat
from trainledger.ledger.units import Member, Unit
from trainledger.model.program import Weight


def flat(ranks: int = 4, **options: Any) -> Flat:
    given = {"named": True, "keeps": False, "forward": False, "backward": EARLY, "reentrant": False}
    return Flat(ranks, FP32, BF16, FP32, **{**given, **options})


def unit(*sizes: int) -> Unit:
    return Unit(
        "a unit", tuple(Member("", Weight(str(at), (Axis(Dim.ELEMENTS, size),))) for at, size in enumerate(sizes))
    )


def test_named_parameters_begin_at_multiples_of_16_bytes() -> None:
    assert [start for _, start in flat().offsets(unit(5, 9, 8))] == [0, 8, 24]
    assert [start for _, start in flat(named=False).offsets(unit(5, 9, 8))] == [0, 5, 14]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
@pytest.mark.parametrize("named", [True, False])
def test_ranks_hold_every_element_once(ranks: int, named: bool) -> None:
    sizes = (5, 9, 8, 1, 300)
    how = flat(ranks, named=named)
    held: dict[str, int] = {}
    for rank in range(ranks):
        for member, size in how.pieces(unit(*sizes), rank):
            held[member.name] = held.get(member.name, 0) + size
    assert tuple(held.values()) == sizes
    assert how.size(unit(*sizes)) == ranks * how.part(unit(*sizes)) >= sum(sizes)


PRECISION = {"weights": "fp32", "compute": "bf16", "autocast": False, "gradients": "fp32", "reduce": "fp32"}


def made(**options: Any) -> Estimate:
    parallel = {"strategy": "fsdp1", "dp": 4, "options": options}
    return estimate(plan_of(LLAMA, precision=PRECISION, batch={"sequence": 16}, parallel=parallel))


def held(found: Estimate, moment: str, account: str) -> int:
    live = next(one.live for one in found.ledger.moments if one.name == moment)
    return sum(found.ledger.lines[line].unit * n for line, n in live if found.ledger.lines[line].account == account)


def test_gradients_are_those_of_the_rank_alone_while_the_optimizer_steps() -> None:
    for named in (True, False):
        found = made(use_orig_params=named)
        assert held(found, "step 2: optimizer", "gradients") == held(found, "step 2: optimizer", "weights")
        assert held(found, "step 2: optimizer", "gradient_reduction") == 0


def test_no_shard_keeps_everything_whole() -> None:
    whole, shards = (states_of(made(**options).ledger) for options in ({"sharding_strategy": "NO_SHARD"}, {}))
    assert whole["weights"] == pytest.approx(4 * shards["weights"], rel=0.01)
    assert whole["optimizer_states"] == pytest.approx(4 * shards["optimizer_states"], rel=0.01)


def of(found: Estimate, part: str) -> set[int]:
    return {number for number, line in enumerate(found.ledger.lines) if part in line.name}


@pytest.mark.parametrize(
    ("sharding", "gathered"), [("FULL_SHARD", FSDP1.streams.gather), ("NO_SHARD", FSDP1.streams.cast)]
)
def test_gradients_are_joined_on_the_stream_of_gathers(sharding: str, gathered: int) -> None:
    """The views of which autograd runs the backward were cut there; what is stored whole is cast before."""
    found = made(sharding_strategy=sharding)
    lines = found.ledger.lines
    assert {lines[one].use.stream for one in of(found, "joined")} == {FSDP1.streams.gather}
    whole = of(found, "gathered weights") - of(found, "laid out")
    assert {lines[one].use.stream for one in whole} == {gathered}


def test_no_shard_keeps_the_cast_that_is_reduced() -> None:
    assert of(made(), "to reduce")
    assert not of(made(sharding_strategy="NO_SHARD"), "to reduce")
    assert not of(made(sharding_strategy="NO_SHARD"), ", whole")


def test_storages_are_laid_out_once_in_the_first_forward() -> None:
    found = made(sharding_strategy="FULL_SHARD")
    wanted = of(found, "laid out")
    born = [
        (segment.moment, event)
        for segment in found.ledger.segments
        for event in segment.events
        if event > 0 and event - 1 in wanted
    ]
    units = LLAMA["num_hidden_layers"] + 1
    assert [moment for moment, _ in born] == ["step 1: forward"] * len(("cast", "gathered", "not cast")) * units
    assert not of(made(sharding_strategy="NO_SHARD"), "gathered weights of the root, laid out")


def lora(transformers: str) -> int:
    adapter = {"kind": "lora", "r": 4, "targets": ["q_proj"], "dtype": "fp32"}
    stack = {
        "versions": {"torch": "2.4.1", "transformers": transformers, "accelerate": "1.0.1", "peft": "0.13.2"},
        "recompute": {"kind": "full", "reentrant": True},
        "attention": "flash",
        "loss": "fused-linear",
    }
    plan = plan_of(
        {**LLAMA, "num_hidden_layers": 8}, adapter=adapter, stack=stack, batch={"sequence": 8192},
        precision={"autocast": True, "gradients": "fp32"}, parallel={"strategy": "fsdp1", "dp": 2},
    )  # fmt: skip
    ledger = estimate(plan).ledger
    first = next(one for one in ledger.moments if one.name == "step 2: backward of layer 0")
    return sum(
        ledger.lines[line].unit * n
        for line, n in first.live
        if "held by a frozen unit's hook" in ledger.lines[line].name
    )


def test_a_frozen_units_hook_holds_layer_inputs_and_their_gradients() -> None:
    """With 8 layers: 7 inputs and 6 gradients; none where the checkpoint lies inside the layer."""
    hidden = 8192 * 256 * 2
    assert lora("4.45.2") == 13 * hidden
    assert lora("4.52.4") == 0


@pytest.mark.parametrize(("transformers", "gathers"), [("4.51.3", 3), ("4.52.4", 2)])
def test_a_unit_is_gathered_once_more_where_its_checkpoint_lies_around_it(transformers: str, gathers: int) -> None:
    stack = {"versions": {"transformers": transformers}, "recompute": {"kind": "full", "reentrant": True}}
    parallel = {"strategy": "fsdp1", "dp": 4, "options": {"backward_prefetch": "NO_PREFETCH"}}
    batch = {"sequence": 16}
    ledger = estimate(plan_of(LLAMA, precision=PRECISION, batch=batch, parallel=parallel, stack=stack)).ledger
    whole = next(at for at, one in enumerate(ledger.lines) if one.name == "gathered weights of model.layers")
    step = [one for one in ledger.segments if one.moment.startswith("step 2")]
    layers = LLAMA["num_hidden_layers"]
    assert sum(one.events.count(whole + 1) * one.repeat for one in step) == gathers * layers


def test_a_flat_gradient_is_padded_apart_where_ranks_do_not_divide_it() -> None:
    one = unit(5, 9, 8)
    assert (flat(named=False).filled(one), flat(named=False).size(one)) == (22, 24)
    assert flat().filled(one) == flat().size(one)
