"""What a run's batches say of their tokens: whether they bring a mask, and whether it hides any."""

from __future__ import annotations

from enum import StrEnum

from trainledger.facts.default_words import MEGATRONS, TRAINERS
from trainledger.facts.kernels_attention import PACKED_MASK
from trainledger.facts.masks import UNMASKED
from trainledger.facts.scope import OWN_MODELS
from trainledger.facts.trainer import TRAINER_BATCH
from trainledger.facts.versions import at_least
from trainledger.plan.lengths import pads
from trainledger.plan.schema import Plan

MASK = "attention_mask"  # the tensor of a batch that says which tokens count


class Rows(StrEnum):
    """What a batch says of its tokens: nothing, a mask of them, a mask that hides padding, or nothing where the model's
    own forward then takes every row for a packed one and makes a mask by positions."""

    BARE = "bare"
    MASKED = "masked"
    PADDED = "padded"
    PACKED = "packed"


def brings(plan: Plan) -> bool:
    """Whether batches bring a mask that hides padding: rows of a trainer on Transformers that are not alike, or that
    the plan says are padded, unless its own list of a batch's tensors has no mask, or the model's code drops it."""
    stack = plan.stack
    if not pads(plan) or UNMASKED.name in (stack.framework, *stack.kernels):
        return False
    said = plan.lengths is not None and plan.lengths.padded
    here = stack.framework in TRAINERS or (said and stack.framework not in (*OWN_MODELS, *MEGATRONS))
    return bool(here) and MASK in (stack.options.get("batch_tensors") or (MASK,))


def hides(plan: Plan) -> bool:
    """Whether attention is handed such a mask; of ranks that share a sequence it is not known."""
    return plan.parallel.cp == 1 and brings(plan)


def rows_of(plan: Plan) -> Rows:
    """What the batches say of their tokens. A Trainer's batches bring a mask of ones where nothing is padded, which is
    none in effect, and a cache, which recompute turns off, brings numbers of its own."""
    stack, row = plan.stack, PACKED_MASK
    if hides(plan):
        return Rows.PADDED
    own = stack.options.get("batch_tensors") or ()
    if MASK in own:
        return Rows.MASKED
    bare = bool(own) or TRAINER_BATCH.package not in stack.versions
    cached = stack.options.get("use_cache") is not False and stack.recompute.kind == "none"
    release, torch = stack.versions.get("transformers"), stack.versions.get("torch")
    here = bool(release) and at_least(release, row.since) and not at_least(release, row.until)
    return Rows.PACKED if bare and not cached and here and at_least(torch, row.torch) else Rows.BARE
