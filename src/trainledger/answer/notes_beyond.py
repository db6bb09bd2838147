"""Notes on what lies beyond the step: who offloads, moments that the ledger has no rule for, lengths."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.check_acting import acts
from trainledger.answer.check_offload import offloads_inputs
from trainledger.facts.default_words import TRAINERS
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.torchao_offload import HOST_STEP
from trainledger.facts.torchtune import TRL_PLAIN
from trainledger.ledger.host_stepped import steps_on_host
from trainledger.plan.degrees import degrees
from trainledger.plan.lengths import LONGEST, MEDIAN, lengths_of
from trainledger.plan.schema import Plan

LOW = "the ledger may be too low"


def beyond_notes(plan: Plan) -> Iterator[str]:
    """What offloads on one device, and how the lengths of samples were taken."""
    if steps_on_host(plan):
        yield f"offload.optimizer: on one device as torchao's CPUOffloadOptimizer does it ({HOST_STEP.source})"
    if offloads_inputs(plan):
        yield f"offload.activations: inputs of recomputed layers, as TRL offloads them ({TRL_PLAIN.source})"
    given = plan.lengths
    if given is None:
        return
    if given.packing == "packed":
        yield "lengths: packed rows are full, batch.sequence tokens each, whatever samples are like"
    else:
        rows = "one row of a micro-batch's samples end to end" if given.packing == "padding-free" else "padded rows"
        yield f"lengths: the estimate is that of the longest sample, {plan.batch.sequence:,} tokens a row, {rows}"


def beyond_uncounted(plan: Plan) -> Iterator[str]:
    """Moments without a rule."""
    if plan.evaluation is not None and plan.stack.framework == PITHTRAIN and degrees(plan).pp > 1:
        yield f"evaluation: over PithTrain's stages it is no moment; {LOW}"
    if _padded(plan):
        yield (
            "lengths: rows padded to the longest bring a mask, for which keys and values are repeated before PyTorch's "
            f"attention and every layer makes an addend; neither is counted; {LOW}"
        )
    if plan.evaluation is not None and acts(plan):
        yield f"evaluation: beside roles it is no moment; {LOW}"


def _padded(plan: Plan) -> bool:
    """Whether rows of many lengths are padded in a batch that Transformers' call of PyTorch's attention gets."""
    given, stack = plan.lengths, plan.stack
    here = stack.framework in TRAINERS and stack.attention == "sdpa" and plan.batch.micro_batch > 1
    if given is None or given.packing != "none" or not here:
        return False
    found = lengths_of(plan)
    return MEDIAN in found and found[MEDIAN] < found.get(LONGEST, 0)
