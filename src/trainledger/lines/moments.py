"""Names of moments: a part of the run, and what runs in it, as in `step 2: backward of the loss`."""

from __future__ import annotations

BETWEEN = ": "
STEPS = ("step 1", "step 2")  # the first, in which states appear, and every later one
INIT, EVALUATION, SAVE = "init", "evaluation", "save"  # the other parts of a run
FORWARD, LOSS, BACKWARD, CLIP, OPTIMIZER = "forward", "loss", "backward", "clip", "optimizer"


def in_part(part: str, what: str) -> str:
    """The name of what runs in a part of the run."""
    return f"{part}{BETWEEN}{what}"


def part_of(name: str) -> str:
    """The part of the run that a moment is in; a moment that has no more than one is its own."""
    return name.partition(BETWEEN)[0]


def what_of(name: str) -> str:
    """What runs at a moment, without the part of the run; empty where the part is the moment."""
    return name.partition(BETWEEN)[2]
