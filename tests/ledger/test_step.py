"""Whole runs: what accumulation, buckets, steps in backward and frozen weights change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.base.dims import Axis, Dim
from trainledger.ledger.rank import updates_of
from trainledger.lines.line import Account
from trainledger.model.program import Role, Weight


def made(**sections: Any) -> Estimate:
    return estimate(plan_of(**sections))


def at(found: Estimate, moment: str, account: Account) -> int:
    lines = found.ledger.lines
    live = next(one.live for one in found.ledger.moments if one.name == moment)
    return sum(lines[line].unit * copies for line, copies in live if lines[line].account is account)


def test_accumulation_holds_the_gradients_of_the_first_micro_batch() -> None:
    one, four = made(), made(batch={"micro_batch": 1, "sequence": 512, "accumulation": 4})
    assert at(one, "step 2: forward", Account.GRADIENTS) == 0
    assert at(four, "step 2: forward", Account.GRADIENTS) == states_of(four.ledger)["gradients"]


def test_gradients_that_are_set_to_zero_stay() -> None:
    kept = made(stack={"options": {"zero_grad_set_to_none": False}})
    assert at(kept, "step 1: forward", Account.GRADIENTS) == 0
    assert at(kept, "step 2: forward", Account.GRADIENTS) == states_of(kept.ledger)["gradients"]


def test_states_appear_at_the_first_step() -> None:
    found = made()
    assert at(found, "step 1: forward", Account.OPTIMIZER) == 0
    assert at(found, "step 2: forward", Account.OPTIMIZER) == states_of(found.ledger)["optimizer_states"]


def test_adagrads_states_are_there_when_it_is_built() -> None:
    found = made(optimizer={"name": "adagrad"})
    assert at(found, "init", Account.OPTIMIZER) == states_of(found.ledger)["optimizer_states"]
    assert at(found, "step 1: forward", Account.OPTIMIZER) == states_of(found.ledger)["optimizer_states"]


@pytest.mark.parametrize(("implementation", "copies"), [("foreach", 1), ("fused", 0)])
def test_what_an_adamw_step_makes(implementation: str, copies: int) -> None:
    found = made(optimizer={"implementation": implementation})
    assert at(found, "step 2: optimizer", Account.STEP) == copies * states_of(found.ledger)["weights"]


def test_a_loop_holds_what_the_parameter_before_left() -> None:
    """Llama's classes register the first projection behind the embedding, and norms last."""
    word, vocab, width = 2, 4096, 256
    found = made(model={**LLAMA, "vocab_size": vocab}, optimizer={"name": "adafactor"})
    assert at(found, "step 2: optimizer", Account.STEP) == word * (vocab + width) * width


def test_a_step_in_backward_keeps_no_gradients() -> None:
    found = made(optimizer={"in_backward": True, "implementation": "fused"})
    assert states_of(found.ledger)["gradients"] == 0
    kept = made(optimizer={"implementation": "fused"})
    last = "step 2: backward of the embedding"
    tops = [next(m.allocated for m in one.ledger.moments if m.name == last) for one in (found, kept)]
    assert tops[0] < tops[1]


def test_buckets_beside_gradients_or_in_their_place() -> None:
    ddp = {"strategy": "ddp", "dp": 2, "world": 2}
    beside = made(parallel=ddp)
    instead = made(parallel={**ddp, "options": {"gradient_as_bucket_view": True}})
    size = states_of(made().ledger)["gradients"]
    for found, gradients in ((beside, size), (instead, 0)):
        assert at(found, "step 2: forward", Account.BUCKETS) >= size
        assert at(found, "step 2: optimizer", Account.GRADIENTS) == gradients


@pytest.mark.parametrize("waits", [False, True])
def test_gradients_wait_whole_for_the_micro_batch_in_which_buckets_take_them(waits: bool) -> None:
    options = {"gradient_as_bucket_view": True, "no_sync": waits}
    batch = {"micro_batch": 1, "sequence": 512, "accumulation": 3}
    found = made(parallel={"strategy": "ddp", "dp": 2, "options": options}, batch=batch)
    size = states_of(made().ledger)["gradients"]
    assert at(found, "step 2: forward", Account.GRADIENTS) == size * waits
    assert at(found, "step 2: optimizer", Account.GRADIENTS) == 0


@pytest.mark.parametrize(("waits", "moment"), [(False, "step 1: forward"), (True, "step 2: forward")])
def test_buckets_are_made_anew_in_the_first_forward_after_a_reduction(waits: bool, moment: str) -> None:
    batch = {"micro_batch": 1, "sequence": 512, "accumulation": 3}
    parallel = {"strategy": "ddp", "dp": 2, "options": {"no_sync": waits}}
    ledger = made(parallel=parallel, batch=batch).ledger
    buckets = {number for number, line in enumerate(ledger.lines) if line.name.startswith("bucket of")}
    gone = [one.moment for one in ledger.segments for event in one.events if -event - 1 in buckets]
    assert set(gone) == {moment}


def test_a_loop_keeps_the_last_that_it_made_for_a_parameter() -> None:
    ledger = made(optimizer={"name": "adamw", "implementation": "loop"}).ledger
    queued = [line.use.queued for line in ledger.lines if line.name.startswith("temporary of")]
    assert queued
    assert all(queued)


def test_frozen_weights_have_no_gradient_and_no_state_and_save_less() -> None:
    all_of_it, some = made(), made(trainable=["lm_head"])
    states = states_of(some.ledger)
    assert states["gradients"] == 2 * 1024 * 256
    assert states["optimizer_states"] == 4 * 1024 * 256
    assert at(some, "step 2: loss", Account.ACTIVATIONS) < at(all_of_it, "step 2: loss", Account.ACTIVATIONS) // 4


def test_recompute_keeps_one_input_per_layer_and_reentrance_costs_a_result() -> None:
    plain, stopped, reentrant = (
        made(stack={"recompute": kind})
        for kind in ("none", {"kind": "full", "reentrant": False}, {"kind": "full", "reentrant": True})
    )
    sizes = [at(found, "step 2: loss", Account.ACTIVATIONS) for found in (plain, stopped, reentrant)]
    assert sizes[1] <= sizes[2] < sizes[0] // 4  # a graph's nodes hold the rotary tables of the step before
    layer = "step 2: backward of layer 2"
    tops = [next(m.allocated for m in found.ledger.moments if m.name == layer) for found in (stopped, reentrant)]
    assert tops[0] < tops[1]


def test_clipping_is_a_moment_of_its_own() -> None:
    assert any(moment.name == "step 2: clip" for moment in made(optimizer={"grad_clip": 1.0}).ledger.moments)
    assert not any(moment.name == "step 2: clip" for moment in made().ledger.moments)


def test_logits_that_the_caller_keeps_are_alive_in_the_next_forward() -> None:
    kept = made(stack={"options": {"keep_outputs": True}})
    assert at(kept, "step 2: forward", Account.LOGITS) - at(made(), "step 2: forward", Account.LOGITS) == 512 * 1024 * 2


def test_the_trainer_keeps_the_states_of_embeddings_out_of_8_bit_codes() -> None:
    optimizer = {"name": "adamw-8bit"}
    alone = updates_of(plan_of(optimizer=optimizer))
    run_by_it = updates_of(plan_of(optimizer=optimizer, stack={"versions": {"accelerate": "1.10.0"}}))
    matrix = Weight("q_proj.weight", (Axis(Dim.FFN, 32), Axis(Dim.HIDDEN, 64)))
    embedding = replace(matrix, role=Role.EMBEDDING)
    assert [alone.options(one).wide for one in (matrix, embedding)] == [False, False]
    assert [run_by_it.options(one).wide for one in (matrix, embedding)] == [False, True]
