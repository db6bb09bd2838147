"""ColossalAI's MixedPrecisionOptimizer under tensor parallelism: states of a rank, and a step's gradients."""

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

WIDE = {**LLAMA, "num_attention_heads": 8, "num_key_value_heads": 8}
NORMS = (2 * LLAMA["num_hidden_layers"] + 1) * LLAMA["hidden_size"]  # whole on every rank


def made(model: dict[str, Any] = WIDE, **sections: Any) -> Estimate:
    parallel = {"strategy": "none", "tp": 4, **sections.pop("parallel", {})}
    stack = {"framework": "colossalai", "versions": {}, "attention": "flash", **sections.pop("stack", {})}
    precision = {"master": "fp32", **sections.pop("precision", {})}
    sections = {"task": "sft", "optimizer": {"grad_clip": 1.0}, **sections}
    return estimate(plan_of(model, parallel=parallel, stack=stack, precision=precision, **sections))


def part(found: Estimate, ranks: int) -> int:
    """Parameters of one rank."""
    return (parameters(model_of(found.plan)) - NORMS) // ranks + NORMS


def born(ledger: Ledger, moment: str, name: str) -> int:
    """Bytes of lines with this name that are born in these moments."""
    return sum(
        ledger.lines[event - 1].unit * segment.repeat
        for segment in ledger.segments
        if segment.moment == moment
        for event in segment.events
        if event > 0 and name in ledger.lines[event - 1].name
    )


def at(ledger: Ledger, moment: str) -> int:
    return max(one.allocated for one in ledger.moments if one.name == moment)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_every_state_is_this_ranks_part_but_norms(ranks: int) -> None:
    found = made(parallel={"tp": ranks})
    count, states = part(found, ranks), states_of(found.ledger)
    assert states["weights"] == pytest.approx(2 * count, rel=0.01)
    assert states["master_weights"] == 2 * states["weights"]
    assert states["optimizer_states"] == 2 * states["master_weights"]
    assert states["gradients"] == pytest.approx(4 * count, rel=0.01)  # in fp32, as the step has them


def test_a_step_raises_every_gradient_and_measures_it_in_fp64() -> None:
    found = made().ledger
    wide, double = born(found, "step 2: clip", "fp32 gradient of"), born(found, "step 2: clip", "in fp64")
    assert wide == pytest.approx(4 * part(made(), 4), rel=0.01)
    assert double == pytest.approx(2 * wide, rel=0.01)
    assert not born(made(optimizer={"grad_clip": None}).ledger, "step 2: clip", "in fp64")


def test_fp32_gradients_stay_until_the_trainer_sets_them_to_none() -> None:
    found = made().ledger
    count = part(made(), 4)
    alive = {moment.name: {found.lines[line].name for line, _ in moment.live} for moment in found.moments}
    assert any(name.startswith("fp32 gradient") for name in alive["step 2: optimizer"])
    assert at(found, "step 1: optimizer") - at(found, "step 2: backward of the embedding") == pytest.approx(
        2 * count, rel=0.25
    )  # fp32 gradients in place of those in bf16


def test_low_level_zero_shards_what_tensor_parallelism_left() -> None:
    whole, cut = (
        states_of(made(parallel={"strategy": "zero2", "dp": dp}, precision={"reduce": "bf16"}).ledger) for dp in (1, 2)
    )
    assert cut["weights"] == whole["weights"]
    assert cut["master_weights"] == pytest.approx(whole["master_weights"] / 2, rel=0.02)


def test_logits_are_gathered_and_layers_add_up_in_place() -> None:
    spread, alone = made().ledger, made(parallel={"tp": 1}).ledger
    words = {line.dims[-1].size for line in spread.lines if "log-probabilities" in line.name}
    assert words == {LLAMA["vocab_size"]}
    assert [line.name for line in spread.lines if "lm_head: whole" in line.name]
    assert not [line.name for line in (*spread.lines, *alone.lines) if "sum over ranks" in line.name]


plans = st.fixed_dictionaries(
    {
        "parallel": st.fixed_dictionaries({"tp": st.sampled_from([1, 2, 4, 8])}),
        "task": st.sampled_from(["sft", "dpo", "kto", "simpo", "orpo", "ppo"]),
        "batch": st.fixed_dictionaries({"micro_batch": st.integers(1, 3), "accumulation": st.integers(1, 3)}),
        "stack": st.fixed_dictionaries(
            {"recompute": st.sampled_from(["none", "full"]), "attention": st.sampled_from(["flash", "eager"])}
        ),
    }
)


@settings(max_examples=15, deadline=None)
@given(plans)
def test_lines_add_up_and_nothing_leaks(sections: dict[str, Any]) -> None:
    found = made(**sections).ledger
    for moment in found.moments:
        assert total(found.lines, moment.live) == moment.allocated
        assert all(copies > 0 for _, copies in moment.live)
    counts = net(found.segments)
    left = {found.lines[line].account for line, count in counts.items() if count}
    assert min(counts.values()) >= 0
    assert not left & {Account.GRADIENTS, Account.CLIP, Account.CACHE}


@settings(max_examples=5, deadline=None)
@given(plans)
def test_more_ranks_never_hold_more(sections: dict[str, Any]) -> None:
    sections = {**sections, "parallel": {}}
    peaks = [made(**{**sections, "parallel": {"tp": ranks}}).steps.allocated.expected for ranks in (2, 4, 8)]
    assert peaks == sorted(peaks, reverse=True)
