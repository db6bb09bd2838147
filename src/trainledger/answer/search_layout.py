"""Stages of a pipeline as Megatron-Core's text: balanced, or with the layers that a solver chose for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from trainledger.facts.pipelines import LAYOUT_LETTERS as LETTERS


def balanced(layers: int, mtp: int, stages: int) -> str | None:
    """The text of so many stages in which embedding, each layer and loss count alike; None where there are too few.

    What does not divide goes to the stages after the first, whose micro-batches wait longest, and before the last,
    whose loss takes time of its own.
    """
    letters = LETTERS.embedding + LETTERS.layer * layers + LETTERS.mtp * mtp + LETTERS.loss
    each, rest = divmod(len(letters), stages)
    if not each:
        return None
    sizes = [each + (1 <= at <= rest) for at in range(stages)]
    starts = [sum(sizes[:at]) for at in range(stages)]
    return text_of([letters[start : start + size] for start, size in zip(starts, sizes, strict=True)])


def written(counts: Sequence[int], mtp: int) -> str:
    """The text of stages with these layers; embedding in the first, further tokens' layers and loss in the last."""
    parts = [LETTERS.layer * count for count in counts]
    parts[0] = LETTERS.embedding + parts[0]
    parts[-1] += LETTERS.mtp * mtp + LETTERS.loss
    return text_of(parts)


def text_of(stages: Sequence[str]) -> str:
    """Stages joined, those that repeat written once."""
    out = []
    for letters, run in groupby(stages[:-1]):
        count = len(tuple(run))
        each = letters + LETTERS.stage
        out.append(each if count == 1 else f"({each})*{count}")
    return "".join((*out, stages[-1]))
