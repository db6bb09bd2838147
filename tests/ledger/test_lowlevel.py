"""ColossalAI's low-level ZeRO: parts of every parameter, buckets of whole gradients, steps here and on the host."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.ledger.rank import Ledger
from trainledger.lines.line import Account
from trainledger.lines.stream import net, total
from trainledger.model.build import model_of
from trainledger.model.counts import total as parameters

RANKS = 4
BUCKET = 12 * 1024 * 1024


def made(model: dict[str, Any] = LLAMA, **sections: Any) -> Estimate:
    parallel = {"strategy": "zero2", "dp": RANKS, **sections.pop("parallel", {})}
    stack = {"framework": "colossalai", "versions": {}, "attention": "flash", **sections.pop("stack", {})}
    precision = {"master": "fp32", "reduce": "bf16", **sections.pop("precision", {})}
    return estimate(plan_of(model, parallel=parallel, stack=stack, precision=precision, **sections))


def births(ledger: Ledger, moment: str, name: str) -> list[int]:
    """Sizes of the lines that contain this name and are born in moments of this name."""
    return [
        ledger.lines[event - 1].unit
        for segment in ledger.segments
        if moment in segment.moment
        for event in segment.events
        if event > 0 and name in ledger.lines[event - 1].name
    ]


def test_states_are_an_even_part_of_every_parameter() -> None:
    found = made()
    count = parameters(model_of(found.plan))
    states = states_of(found.ledger)
    assert states["weights"] == 2 * count
    assert states["master_weights"] == pytest.approx(4 * count / RANKS, rel=0.001)  # norms are rounded to a block
    assert states["optimizer_states"] == pytest.approx(8 * count / RANKS, rel=0.01)


def test_every_gradient_is_raised_before_the_step_and_measured_in_fp64() -> None:
    found = made().ledger
    count = parameters(model_of(made().plan))
    raised, doubled = (births(found, "step 2: clip", name) for name in ("fp32 gradient", "fp64"))
    assert sum(raised) == pytest.approx(4 * count / RANKS, rel=0.001)
    assert [2 * size for size in raised if size > 512] == [size for size in doubled if size > 512]


@pytest.mark.parametrize(("strategy", "kept"), [("zero1", RANKS), ("zero2", 1)])
def test_a_bucket_keeps_this_ranks_part_or_all(strategy: str, kept: int) -> None:
    """Small gradients wait for one another: here all of them fit in one bucket, which is reduced last of all."""
    found = made(parallel={"strategy": strategy})
    size = 2 * parameters(model_of(found.plan)) // RANKS
    end = next(moment for moment in found.ledger.moments if moment.name == "step 2: clip")
    lines = {found.ledger.lines[line].name: found.ledger.lines[line].unit for line, _ in end.live}
    name = "reduced gradients of a bucket, this rank's part" if kept == 1 else "bucket of gradients, flat"
    assert lines[name] == pytest.approx(kept * size, rel=0.01)


def test_a_large_gradient_is_cloned_twice_and_joined() -> None:
    """Beside the next one that came: whole, its clone, slices of all ranks, then the flat copy."""
    wide = {**LLAMA, "hidden_size": 1024, "vocab_size": 16384, "num_hidden_layers": 1}
    found = made(wide).ledger
    size = 2 * 1024 * 16384
    assert size // 2 > BUCKET
    assert size in births(found, "step 2: backward", "clone of a gradient")
    assert births(found, "step 2: backward", "slice of a gradient").count(size // RANKS) == 2 * RANKS
    assert births(found, "step 2: backward", "flat").count(size) == 2


def test_an_offloaded_optimizer_leaves_the_device() -> None:
    found = made(offload={"optimizer": "cpu"}, optimizer={"implementation": "cpu"})
    states = states_of(found.ledger)
    assert states["master_weights"] == states["optimizer_states"] == 0
    count = parameters(model_of(found.plan))
    sizes = dict.fromkeys((Account.MASTER, Account.GRADIENTS, Account.OPTIMIZER), 0)
    for line, copies in found.ledger.host:
        sizes[line.account] += line.unit * copies
    assert sizes == {
        Account.MASTER: 4 * count // RANKS, Account.GRADIENTS: 4 * count // RANKS, Account.OPTIMIZER: 8 * count // RANKS
    }  # fmt: skip


def test_without_a_gradient_of_the_input_a_reentrant_checkpoint_trains_nothing_inside() -> None:
    """Only the output layer's adapter is reached: the others have master weights and no gradient."""
    adapter = {"kind": "lora", "r": 8, "targets": "all-linear"}
    found = made(adapter=adapter, stack={"recompute": {"kind": "full", "reentrant": True}}).ledger
    masters = births(found, "init", "master weights of")
    raised = births(found, "step 1: clip", "fp32 gradient")
    assert len(masters) == 2 * (7 * LLAMA["num_hidden_layers"] + 1)
    assert len(raised) == 2
    kept = [
        found.lines[line].name for moment in found.moments if moment.name == "step 2: loss" for line, _ in moment.live
    ]
    assert not [
        name for name in kept if name.startswith("model.layers") and "lora" not in name and "weight" not in name
    ]


plans = st.fixed_dictionaries(
    {
        "parallel": st.fixed_dictionaries(
            {"strategy": st.sampled_from(["zero1", "zero2"]), "dp": st.sampled_from([2, 3, 8])}
        ),
        "task": st.sampled_from(["sft", "simpo", "orpo"]),
        "batch": st.fixed_dictionaries({"micro_batch": st.integers(1, 3), "accumulation": st.integers(1, 3)}),
        "offload": st.sampled_from([{}, {"optimizer": "cpu"}]),
        "stack": st.fixed_dictionaries({"recompute": st.sampled_from(["none", {"kind": "full", "reentrant": True}])}),
    }
)


@settings(max_examples=25, deadline=None)
@given(plans)
def test_lines_add_up_and_nothing_leaks(sections: dict[str, Any]) -> None:
    found = made(**sections).ledger
    for moment in found.moments:
        assert total(found.lines, moment.live) == moment.allocated
        assert all(copies > 0 for _, copies in moment.live)
    counts = net(found.segments)
    left = {found.lines[line].account for line, count in counts.items() if count}
    assert not left & {Account.GRADIENTS, Account.REDUCTION, Account.GATHERED, Account.CLIP}
