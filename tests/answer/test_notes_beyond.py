"""Notes on offloads of one device, on lengths, and on moments without a rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.notes_beyond import beyond_notes, beyond_uncounted

PIPELINE = {"strategy": "fsdp2", "pp": 2, "dp": 2}


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({}, ()),
        ({"offload": {"optimizer": "cpu"}}, ("torchao's CPUOffloadOptimizer",)),
        ({"offload": {"activations": "cpu"}, "stack": {"recompute": "full"}}, ("as TRL offloads them",)),
        ({"lengths": {"longest": 90}}, ("that of the longest sample", "padded rows")),
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
    ("batch", "lengths", "attention", "said"),
    [
        (2, {"median": 90, "longest": 400}, "sdpa", True),
        (1, {"median": 90, "longest": 400}, "sdpa", False),
        (2, {"median": 90, "longest": 400}, "flash", False),
        (2, {"median": 90, "longest": 400, "packing": "padding-free"}, "sdpa", False),
        (2, {"longest": 400}, "sdpa", False),
    ],
)
def test_masks_of_padded_rows_are_named(batch: int, lengths: dict[str, Any], attention: str, said: bool) -> None:
    plan = plan_of(batch={"micro_batch": batch}, lengths=lengths, stack={"attention": attention})
    assert any("bring a mask" in note for note in beyond_uncounted(plan)) is said
