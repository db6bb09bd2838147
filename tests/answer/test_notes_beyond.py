"""Notes on offloads of one device, on lengths, and on moments without a rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.answer.notes_beyond import beyond_notes, beyond_uncounted

PIPELINE = {"strategy": "fsdp2", "pp": 2, "dp": 2}


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({}, ()),
        ({"offload": {"optimizer": "cpu"}}, ("torchao's CPUOffloadOptimizer",)),
        ({"offload": {"activations": "cpu"}, "stack": {"recompute": "full"}}, ("as TRL offloads them",)),
        ({"lengths": {"longest": 90}}, ("that of the longest sample", "padded rows")),
        ({"lengths": {"padded": True}}, ("padded rows and the mask that hides padding",)),
        ({"lengths": {"longest": 90, "packing": "padding-free"}}, ("end to end",)),
        ({"lengths": {"longest": 90, "packing": "packed"}}, ("packed rows are full",)),
    ],
)
def test_what_was_taken_for_granted(sections: dict[str, Any], words: tuple[str, ...]) -> None:
    text = " ".join(beyond_notes(plan_of(**sections)))
    assert bool(text) == bool(words)
    assert all(word in text for word in words)


def test_an_evaluation_without_a_rule_is_named() -> None:
    assert [*beyond_uncounted(plan_of(evaluation={}))] == []
    titan, pith = ({"framework": one, "versions": {"torch": "2.14.1"}} for one in ("torchtitan", "pithtrain"))
    given: dict[str, Any] = {"evaluation": {}, "parallel": PIPELINE, "batch": {"accumulation": 2}}
    assert [*beyond_uncounted(plan_of(**given, stack=titan))] == []
    (note,) = beyond_uncounted(plan_of(**given, stack=pith))
    assert note.startswith("evaluation: ")
    assert note.endswith("too low")


@pytest.mark.parametrize(
    ("sections", "word"),
    [
        ({"stack": {"attention": "sdpa"}}, ""),
        ({"stack": {"attention": "eager"}}, ""),
        ({"stack": {"attention": "flash"}}, "a second result in every layer"),
        ({"stack": {"attention": "sdpa"}, "parallel": {"strategy": "fsdp2", "cp": 2, "world": 2}}, "share a sequence"),
        ({"stack": {"attention": "flash"}, "batch": {"micro_batch": 1}}, ""),
    ],
)
def test_what_padding_takes_that_is_not_counted(sections: dict[str, Any], word: str) -> None:
    plan = plan_of(**{"batch": {"micro_batch": 2}, "lengths": {"median": 90, "longest": 400}, **sections})
    found = [note for note in beyond_uncounted(plan) if note.startswith("lengths")]
    assert bool(found) == bool(word)
    assert all(word in note and note.endswith("too low") for note in found)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({}, True),
        ({"batch": {"micro_batch": 1}}, False),
        ({"task": "dpo", "batch": {"micro_batch": 1}}, True),
        ({"task": "pretrain"}, False),
        ({"lengths": {"padded": False}}, False),
        ({"lengths": {"padded": True}}, False),
        ({"stack": {"options": {"packing": True}}}, False),
        ({"stack": {"attention": "flash"}}, False),
        ({"stack": {"kernels": ["unsloth"]}}, False),
    ],
)
def test_rows_of_a_trainer_that_may_be_padded_are_named(sections: dict[str, Any], said: bool) -> None:
    versions = {"torch": "2.13.0", "transformers": "5.24.0", "accelerate": "1.15.0", "trl": "1.16.0"}
    stack = {"versions": versions, **sections.get("stack", {})}
    plan = plan_of(**{"task": "sft", "batch": {"micro_batch": 2}, **sections, "stack": stack})
    assert any("taken to be alike" in note for note in beyond_uncounted(plan)) is said


def test_a_plain_loop_s_rows_are_as_it_says() -> None:
    assert not [*beyond_uncounted(plan_of(task="sft", batch={"micro_batch": 2}))]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("galore-adamw", "singular value decomposition"),
        ("adamw-torchao-8bit", "a step that is compiled"),
        ("adamw", ""),
    ],
)
def test_what_an_optimizers_step_makes_without_a_rule_is_said(name: str, said: str) -> None:
    told = [one for one in estimate(plan_of(optimizer={"name": name})).notes.uncounted if one.startswith("optimizer.")]
    assert bool(told) == bool(said)
    assert all(said in one and "may be too low" in one for one in told)
