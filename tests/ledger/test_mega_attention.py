"""Scores that Megatron-Core writes out, in the order in which its own code makes and lets go of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import BATCH, HEADS, HIDDEN, LLAMA, LOCAL, SEQUENCE, plan_of
from trainledger.allocator.conf import DEFAULT
from trainledger.answer.estimate import estimate
from trainledger.answer.replayed import replayed
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_once import SHARED
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.megatron import job_of
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

CORE = "self_attention.core_attention: "
TOKENS = BATCH * SEQUENCE * HIDDEN * 2
SCORES = BATCH * HEADS * SEQUENCE * SEQUENCE


def events_of(plan: Plan, backward: bool = False) -> list[tuple[bool, str, int]]:
    """Births and deaths in a layer of the model, by name and bytes."""
    job = job_of(plan, model_of(plan), "sm90")
    walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
    walked = walks.layer(*walks.groups(walks.whole())[0], (False, False))
    events = walked.backward if backward else walked.forward
    lines = [job.book.lines[abs(event) - 1] for event in events]
    return [(event > 0, line.name, line.unit) for event, line in zip(events, lines, strict=True)]


def scored(options: dict[str, Any], **parts: Any) -> Plan:
    return plan_of(LLAMA, stack={"options": {**LOCAL, **options}, **parts})


def square(plan: Plan) -> list[tuple[bool, str, int]]:
    """Births and deaths of tensors of all scores in the forward, bytes over their number."""
    every = [(born, name.rpartition(CORE)[2], size / SCORES) for born, name, size in events_of(plan) if CORE in name]
    return [(born, name, int(size)) for born, name, size in every if size >= 2]


def test_the_softmax_in_fp32_reads_a_copy_of_the_scores() -> None:
    found = square(scored({"attention_softmax_in_fp32": True}))
    assert [(born, size) for born, _, size in found] == [
        (True, 2), (True, 4), (True, 4), (True, 2), (False, 4), (False, 2)
    ]  # fmt: skip


def test_scores_divided_by_the_layers_number_are_multiplied_by_it_in_another_tensor() -> None:
    found = square(scored({"apply_query_key_layer_scaling": True}))
    assert [(born, size) for born, _, size in found][:4] == [(True, 2), (True, 4), (True, 4), (False, 4)]


def test_scores_that_are_masked_in_place_are_no_copy() -> None:
    assert [size for born, _, size in square(scored({})) if born] == [2, 2]


def test_a_mask_that_comes_with_the_batch_is_not_made_for_each_layer() -> None:
    made, given = (scored({"create_attention_mask_in_dataloader": one}) for one in (False, True))
    masks = [[name for _, name, _ in events_of(plan) if "mask" in name or "ones" in name] for plan in (made, given)]
    assert masks[0]
    assert masks[1] == []


@pytest.mark.parametrize(
    ("tp", "batch", "sequence", "fused"),
    [
        (1, 1, 512, True),
        (8, 1, 512, False),
        (8, 2, 512, True),
        (4, 1, 128, False),
        (4, 2, 128, True),
        (1, 1, 8192, False),
    ],
)
def test_the_kernel_takes_heads_of_sequences_by_fours_or_eights(
    tp: int, batch: int, sequence: int, fused: bool
) -> None:
    plan = plan_of(
        {**LLAMA, "num_key_value_heads": HEADS},
        batch={"micro_batch": batch, "sequence": sequence},
        parallel={"tp": tp},
        stack={"options": {**LOCAL, "masked_softmax_fusion": True}},
    )
    assert any("causal mask" in name for _, name, _ in events_of(plan)) is not fused


def test_a_gradient_of_a_view_is_copied_and_again_for_the_function_that_wrote_it() -> None:
    """Four tensors of all scores: the view's gradient, what is to be the product's, and the two of the function."""
    live = most = 0
    for born, name, size in events_of(scored({}), backward=True):
        if CORE in name and size == 2 * SCORES and "softmax" not in name:
            live += 1 if born else -1
            most = max(most, live)
    assert most == 4


def shared(
    parallel: dict[str, Any], model: dict[str, Any] = LLAMA, attention: str = "unfused"
) -> list[tuple[bool, int]]:
    """Births and deaths of the buffer that layers share in a whole run, its elements."""
    ledger = estimate(plan_of(model, parallel=parallel, stack={"attention": attention}), 0).ledger
    found = replayed(ledger, DEFAULT)
    assert found is not None
    events = [event for one in found.asked.segments for event in one.events if event]
    lines = [(event > 0, ledger.lines[abs(event) - 1]) for event in events]
    return [(born, line.unit // 2) for born, line in lines if line.name == SHARED]


def test_the_buffer_of_gathered_inputs_gives_way_to_that_of_scores() -> None:
    tokens = BATCH * SEQUENCE * HIDDEN
    assert shared({"tp": 2, "sp": True}) == [(True, tokens), (True, SCORES // 2), (False, tokens)]
    assert shared({"tp": 2}) == [(True, SCORES // 2)]
    assert shared({"tp": 2, "sp": True}, attention="sdpa") == [(True, tokens)]


def test_layers_for_further_tokens_gather_hidden_states_and_words_side_by_side() -> None:
    tokens = BATCH * SEQUENCE * HIDDEN
    more = {**LLAMA, "num_nextn_predict_layers": 1}
    assert shared({"tp": 2, "sp": True}, more, "sdpa") == [(True, tokens), (True, 2 * tokens), (False, tokens)]


@pytest.mark.parametrize("count", [2, 3])
def test_layers_that_run_again_together_have_a_gradient_each(count: int) -> None:
    """A weight's gradient is added to the buffer as it arrives: none waits for the layer before."""
    again = {"kind": "full", "method": "uniform", "num_layers": count}
    live = most = 0
    for born, name, _ in events_of(plan_of(LLAMA, stack={"recompute": again, "attention": "sdpa"}), backward=True):
        if "gradient of mlp.linear_fc2.weight" in name:
            live += 1 if born else -1
            most = max(most, live)
    assert most == 1
    assert estimate(plan_of(LLAMA, stack={"recompute": again})).peak
