"""Moves: rows that name keys of the plan, conditions, values made of the plan's own, and moves together."""

from __future__ import annotations

import pytest

from tests.answer.test_advise import BASE
from tests.plans import LLAMA
from trainledger.answer.changed import LEFT_OUT, Change, planned, with_changes
from trainledger.answer.moves import Taken, taken, together
from trainledger.facts.move_row import LEVELS, AtLeast, Move, Times
from trainledger.facts.moves import MOVES
from trainledger.plan.problems import known_paths


def moves(*changes: Change) -> dict[str, Taken]:
    data = with_changes(BASE, changes)
    return {one.name: one for one in taken(data, planned(data))}


@pytest.mark.parametrize("move", MOVES, ids=[f"{number} {move.name}" for number, move in enumerate(MOVES)])
def test_rows_name_keys_of_the_plan(move: Move) -> None:
    known = known_paths()
    for path in (*(path for path, _ in move.sets), *(path for path, _ in move.when)):
        assert path in known, path
    assert move.sets
    assert move.name == move.name.strip()
    assert move.price in LEVELS


def test_conditions() -> None:
    assert "attention by FlashAttention-2" in moves()
    assert "attention by FlashAttention-2" not in moves(Change("stack.attention", "flash"))
    assert "half the adapter's rank" not in moves()
    lora = {"kind": "lora", "r": 8, "targets": ["q_proj"]}
    assert "half the adapter's rank" in moves(Change("adapter", lora))
    assert "frozen weights in NF4" in moves(Change("adapter", lora))
    assert "LoRA of rank 16 on all linear layers" not in moves(Change("task", "pretrain"))


def test_values_that_are_not_whole_make_no_move() -> None:
    assert "half the micro-batch, twice the accumulation" in moves()
    assert "half the micro-batch, twice the accumulation" not in moves(Change("batch.micro_batch", 3))
    assert "half the micro-batch, twice the accumulation" not in moves(Change("batch.micro_batch", 1))


def test_lists_grow_and_keys_go() -> None:
    fused = moves(Change("stack.kernels", ["foak"]))["loss fused with the head, in chunks (Liger)"]
    assert Change("stack.kernels", ["foak", "liger"]) in fused.changes
    bits = moves()["8-bit optimizer states"]
    assert Change("optimizer.implementation", LEFT_OUT) in bits.changes


def test_the_last_layers_are_named_as_the_model_names_them() -> None:
    name = "only the last quarter of the layers trained"
    llama = moves(Change("model", {**LLAMA, "num_hidden_layers": 8}), Change("task", "sft"))[name]
    assert llama.changes == (Change("trainable", ["model.layers.6", "model.layers.7"]),)
    keys = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 1000}
    gpt2 = moves(Change("model", keys), Change("task", "sft"))[name]
    assert gpt2.changes == (Change("trainable", ["transformer.h.1"]),)
    for change in (Change("task", "pretrain"), Change("trainable", ["mlp"]), Change("stack.framework", "torchtune")):
        assert name not in moves(Change("task", "sft"), change)


def test_moves_of_one_group_do_not_go_together() -> None:
    found = moves()
    first, second = found["8-bit optimizer states"], found["Adafactor in place of AdamW"]
    assert together(first, second, BASE) is None
    assert together(found["8-bit optimizer states"], found["fused optimizer step"], BASE) is None  # it has no such step
    both = together(found["recompute every layer"], found["8-bit optimizer states"], BASE)
    assert both is not None
    assert both.name == "recompute every layer + 8-bit optimizer states"
    plan = planned(BASE, both.changes)
    assert (plan.stack.recompute.kind, plan.optimizer.name) == ("full", "adamw-8bit")


def test_conditions_are_values() -> None:
    assert Times(1, 2) == Times(1, 2)
    assert AtLeast(2) != AtLeast(3)


def test_evaluation_has_moves_of_its_own() -> None:
    kept = {"micro_batch": 8, "batches": 4, "prediction_loss_only": False}
    found = moves(Change("evaluation", kept))
    halved = found["half the micro-batch of evaluation, twice the batches"]
    assert {(one.path, one.value) for one in halved.changes} == {
        ("evaluation.micro_batch", 4),
        ("evaluation.batches", 8),
    }
    assert "kept logits to the host after every batch" in found
    assert "no logits kept in evaluation" in found
    assert not [name for name in moves() if "evaluation" in name]
    assert "kept logits to the host after every batch" not in moves(Change("evaluation", {"micro_batch": 8}))


def test_long_sequences_under_deepspeed_can_run_in_tiles() -> None:
    zero3 = (Change("parallel", {"strategy": "zero3", "dp": 8}), Change("stack.framework", "deepspeed"))
    assert "MLPs in tiles of the sequence" in moves(*zero3, Change("batch.sequence", 65536))
    assert "MLPs in tiles of the sequence" not in moves(*zero3, Change("batch.sequence", 2048))


def test_what_shards_by_deepspeed_clips_and_steps_as_before() -> None:
    """The Trainer's own settings stay, where those of a plan of DeepSpeed alone would take their place."""
    spread = [Change("parallel", {"strategy": "ddp", "world": 4}), Change("optimizer", {"name": "adamw"})]
    data = with_changes(BASE, spread)
    before = planned(data).optimizer
    found = moves(*spread)["ZeRO-2: gradients sharded too"]
    after = planned(data, found.changes).optimizer
    assert (after.grad_clip, after.implementation) == (before.grad_clip, before.implementation) != (None, None)
    given = moves(spread[0])["ZeRO-2: gradients sharded too"]  # of BASE, which says both
    assert not [one for one in given.changes if one.path.startswith("optimizer.")]
