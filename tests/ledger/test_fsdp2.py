"""FSDP2 around the pieces of a micro-batch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.ledger.rank import Ledger

LAYER = 2 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 640 + 2 * 256)  # bytes in bf16
ENDS = 2 * (2 * 1024 * 256 + 256)
SLACK = 40 * 512  # every copy is rounded to a block


def made(**sections: Any) -> Ledger:
    parallel = {"strategy": "fsdp2", "dp": 4, **sections.pop("parallel", {})}
    return estimate(plan_of(LLAMA, batch={"sequence": 4096}, parallel=parallel, **sections)).ledger


def held(ledger: Ledger, moment: str, account: str) -> int:
    live = next(one.live for one in ledger.moments if one.name == moment)
    return sum(ledger.lines[line].unit * copies for line, copies in live if ledger.lines[line].account == account)


def near(size: int, expected: int) -> bool:
    return expected <= size <= expected + SLACK


def test_forward_holds_a_layer_twice_and_the_root_once() -> None:
    """The output of a gather stays until the next unit is copied out of its own."""
    assert near(held(made(), "step 2: forward", "gathered_weights"), ENDS + 2 * LAYER)


def test_backward_holds_the_layer_that_runs_and_the_next_one_gathered() -> None:
    assert near(held(made(), "step 2: backward of layer 1", "gathered_weights"), ENDS + 2 * LAYER)
    assert near(held(made(), "step 2: backward of layer 0", "gathered_weights"), ENDS + LAYER)


def test_kept_layers_are_all_there_at_the_loss() -> None:
    kept = made(parallel={"reshard_after_forward": False})
    assert near(held(kept, "step 2: loss", "gathered_weights"), ENDS + 3 * LAYER + LAYER)


@pytest.mark.parametrize("between", [1, 2, 4])
def test_layers_are_kept_over_fewer_ranks_between_forward_and_backward(between: int) -> None:
    """One is as false, all ranks as true."""
    kept = made(parallel={"reshard_after_forward": between})
    waiting = 0 if between == 4 else 3 * LAYER // between
    # the gather of the last layer stays until the root's end; with layers kept, the root reshards over the two as well
    assert near(held(kept, "step 2: loss", "gathered_weights"), waiting + ENDS + LAYER)
    assert near(held(kept, "step 2: optimizer", "gathered_weights"), 0)


@pytest.mark.parametrize(
    ("strategy", "between", "found"), [("fsdp2", 3, "Did you mean 2?"), ("fsdp1", 2, "Set it to true or false.")]
)
def test_a_number_of_ranks_that_cannot_be_is_refused(strategy: str, between: int, found: str) -> None:
    with pytest.raises(InputError) as caught:
        made(parallel={"strategy": strategy, "reshard_after_forward": between})
    assert [(one.path, one.fix) for one in caught.value.problems] == [("parallel.reshard_after_forward", found)]


def test_a_root_that_reshards_is_gathered_again_before_the_loss_runs_backward() -> None:
    old, new = (made(stack={"versions": {"torch": torch}}) for torch in ("2.7.0", "2.13.0"))
    last = {"step 2: backward of the loss"}
    for ledger in (old, new):
        assert all(near(held(ledger, moment, "gathered_weights"), ENDS + LAYER) for moment in last)
    init = next(one for one in new.moments if one.name == "step 2: optimizer")
    assert not any(new.lines[line].account == "gathered_weights" for line, _ in init.live)


def test_gradients_wait_whole_where_only_the_last_micro_batch_reduces() -> None:
    batch = {"sequence": 4096, "accumulation": 4}
    waiting = []
    for wait in (False, True):
        parallel = {"strategy": "fsdp2", "dp": 4, "options": {"no_sync": wait}}
        ledger = estimate(plan_of(LLAMA, batch=batch, parallel=parallel)).ledger
        waiting.append(held(ledger, "step 2: forward", "gradient_reduction"))
    assert near(waiting[1] - waiting[0], 3 * LAYER + ENDS)


def test_gradients_are_kept_whole_in_the_order_of_the_unit() -> None:
    """Not in that of their arrival: FSDP goes through its own list of parameters."""
    precision = {"weights": "fp32", "compute": "bf16", "gradients": "fp32", "reduce": "fp32", "autocast": False}
    ledger = estimate(
        plan_of(
            LLAMA, precision=precision, batch={"sequence": 64, "accumulation": 2},
            parallel={"strategy": "fsdp2", "dp": 4, "options": {"no_sync": True}},
        )
    ).ledger  # fmt: skip
    last = next(
        one for one in ledger.segments if one.moment == f"step 1: backward of layer {LLAMA['num_hidden_layers'] - 1}"
    )
    names = [ledger.lines[event - 1].name for event in last.events if event > 0]
    kept = [name.split(".")[-2] for name in names if "not reduced yet" in name]
    linears = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    assert kept == [*linears, "input_layernorm", "post_attention_layernorm"]


def titan(version: str, fp8: dict[str, Any] | None = None, **parallel: Any) -> Ledger:
    stack = {"framework": "torchtitan", "versions": {"torchtitan": version}, "recompute": {"kind": "full"}}
    precision = {"weights": "fp32", "gradients": "fp32", "compute": "fp8" if fp8 else "bf16", "fp8": fp8}
    return made(stack=stack, precision=precision, parallel=parallel)


@pytest.mark.parametrize("version, always, layers", [("5940ddeb532c", False, 1), ("5940ddeb532c", True, 0)])
def test_torchtitans_last_layer_stayed_gathered(version: str, always: bool, layers: int) -> None:
    """The model's forward, before the loss, lets go of the last gather's output."""
    ledger = titan(version, options={"reshard_last_layer": always})
    assert near(held(ledger, "step 2: loss", "gathered_weights"), ENDS + layers * LAYER)


def test_torchtitans_head_stays_gathered_by_itself() -> None:
    head = 2 * (1024 * 256 + 256)
    assert near(held(titan("6fc499f6"), "step 2: loss", "gathered_weights"), head)  # held against torchtitan 0.2.2


@pytest.mark.parametrize("loss", ["full-fp32", "vocab-parallel"])
def test_torchtitans_head_may_be_let_go_of_as_its_forward_ends(loss: str) -> None:
    """Held against torchtitan 0.2.2 on PyTorch's own allocator: the peak falls by the head's weights."""
    tensor = {"tp": 2, "sp": True} if loss == "vocab-parallel" else {}
    stack = {"framework": "torchtitan", "versions": {"torchtitan": "6fc499f6"}, "recompute": "none", "loss": loss}
    kept, shut = (
        made(stack=stack, parallel={"dp": 4, "options": {"reshard_last_layer": one}, **tensor}) for one in (False, True)
    )
    backward = "step 2: backward of the loss"
    fewer = held(kept, backward, "gathered_weights") - held(shut, backward, "gathered_weights")
    assert fewer == 2 * 256 * 1024 // int(tensor.get("tp", 1)) + 512  # and the norm before it


def test_weights_of_layers_are_gathered_in_8_bits() -> None:
    wide, narrow = (titan("5940ddeb532c", {"recipe": "tensorwise", "all_gather": one}) for one in (False, True))
    norms = 2 * 2 * 256
    assert near(held(wide, "step 2: forward", "gathered_weights"), ENDS + 2 * LAYER)
    assert near(held(narrow, "step 2: forward", "gathered_weights"), ENDS + LAYER + norms)


def test_an_output_is_held_until_the_next_one_has_been_copied_out_of() -> None:
    """Of a batch so small that nothing else counts: the layer before in its gather, this one's, and its weights."""
    ledger = estimate(plan_of(LLAMA, batch={"sequence": 8}, parallel={"strategy": "fsdp2", "dp": 4})).ledger
    assert near(held(ledger, "step 2: forward", "gathered_weights"), ENDS + 3 * LAYER)


def test_the_last_gradient_is_named_until_its_reduction_has_been_asked_for() -> None:
    """The head's, which is registered last, from PyTorch 2.6 on; reductions in fp32 are larger than what they read."""
    last, vocab = [], 16384
    for release in ("2.5.1", "2.6.0"):
        found = estimate(
            plan_of(
                {**LLAMA, "vocab_size": vocab},
                precision={"reduce": "fp32"},
                batch={"sequence": 8},
                parallel={"strategy": "fsdp2", "dp": 2},
                stack={"versions": {"torch": release, "transformers": "5.24.0"}},
            )
        )
        last.append(next(one.allocated for one in found.ledger.moments if one.name.endswith("the embedding")))
    assert last[1] - last[0] == 2 * vocab * 256
