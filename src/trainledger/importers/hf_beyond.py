"""What a Trainer's arguments say beyond the step: how many checkpoints are kept, of what, and data loaders' workers."""

from __future__ import annotations

from trainledger.facts.import_hf import BEYOND_COUNTS, LEAN, WEIGHTS_ONLY
from trainledger.importers.arguments import Arguments


def beyond_keys(given: Arguments) -> None:
    """Give the plan's `save` and the loader's options where the arguments say something of them. A limit below one is
    none, and without workers nothing is fetched ahead."""
    found = {name: given.whole(name, least=-1) or 0 for _, name in BEYOND_COUNTS}
    workers, ahead = (name for path, name in BEYOND_COUNTS if not path.startswith("save."))
    for path, name in BEYOND_COUNTS:
        if found[name] > 0 and (name != ahead or found[workers] > 0):
            given.piece.give(path, found[name], given.where(name))
    if given.flag(WEIGHTS_ONLY):
        given.piece.give("save.optimizer", False, given.where(WEIGHTS_ONLY))
    if (lean := given.flag(LEAN)) is not None:
        given.piece.give(f"stack.options.{LEAN}", lean, given.where(LEAN))
