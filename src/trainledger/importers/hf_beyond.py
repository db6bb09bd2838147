"""What a Trainer's arguments say beyond the step: how many checkpoints are kept, of what, and data loaders' workers."""

from __future__ import annotations

from trainledger.importers.arguments import Arguments

LIMIT, ONLY = "save_total_limit", "save_only_model"
LEAN = "low_cpu_mem_usage"
WORKERS, AHEAD = "dataloader_num_workers", "dataloader_prefetch_factor"


def beyond_keys(given: Arguments) -> None:
    """Give the plan's `save` and the loader's options where the arguments say something of them. A limit below one is
    none."""
    limit, workers, ahead = given.whole(LIMIT, least=-1), given.whole(WORKERS), given.whole(AHEAD)
    if limit and limit > 0:
        given.piece.give("save.limit", limit, given.where(LIMIT))
    if given.flag(ONLY):
        given.piece.give("save.optimizer", False, given.where(ONLY))
    if workers:
        given.piece.give(f"stack.options.{WORKERS}", workers, given.where(WORKERS))
        if ahead:
            given.piece.give(f"stack.options.{AHEAD}", ahead, given.where(AHEAD))
    if (lean := given.flag(LEAN)) is not None:
        given.piece.give(f"stack.options.{LEAN}", lean, given.where(LEAN))
