"""What a Trainer's arguments say beyond the step: checkpoints, data loaders' workers, and the
batches of its evaluation."""

from __future__ import annotations

from trainledger.facts.import_hf import (
    BEST,
    BEYOND_COUNTS,
    EVAL_START,
    EVAL_STEPS,
    EVALUATED,
    EVALUATES,
    LEAN,
    NEVER,
    SAVES,
    WEIGHTS_ONLY,
)
from trainledger.facts.import_hf_filled import EVALUATION
from trainledger.importers.arguments import Arguments


def beyond_keys(given: Arguments) -> None:
    """Give the plan's `save` and the loader's options where the arguments say something of them. A limit below one is
    none, and without workers nothing is fetched ahead. Beside the last checkpoint the best one stays where it is loaded
    at the end."""
    found = {name: given.whole(name, least=-1) or 0 for _, name in BEYOND_COUNTS}
    limit = next(name for path, name in BEYOND_COUNTS if path == "save.limit")
    if str(given.raw(SAVES)).lower() in NEVER:
        found[limit] = 0
    elif found[limit] == 1 and given.flag(BEST):
        found[limit] = len(("best", "last"))
    workers, ahead = (name for path, name in BEYOND_COUNTS if not path.startswith("save."))
    for path, name in BEYOND_COUNTS:
        if found[name] > 0 and (name != ahead or found[workers] > 0):
            given.piece.give(path, found[name], given.where(name))
    if given.flag(WEIGHTS_ONLY):
        given.piece.give("save.optimizer", False, given.where(WEIGHTS_ONLY))
    if (lean := given.flag(LEAN)) is not None:
        given.piece.give(f"stack.options.{LEAN}", lean, given.where(LEAN))
    _evaluation(given)


def _evaluation(given: Arguments) -> None:
    """The Trainer's evaluation, where it has one: of losses alone, since no file says what metrics are computed."""
    piece, word = given.piece, given.text(*EVALUATES)
    if (word or "no").lower() == "no" and not given.flag(EVAL_START):
        return
    if (rows := given.whole(*EVALUATED, least=1)) is not None:
        piece.give(EVALUATION.path, rows, given.where(*EVALUATED))
    else:
        piece.fill(EVALUATION.path, EVALUATION.value, EVALUATION.why, EVALUATION.source)
    if (steps := given.whole(EVAL_STEPS, least=1)) is not None:
        piece.give("evaluation.accumulation", steps, given.where(EVAL_STEPS))
