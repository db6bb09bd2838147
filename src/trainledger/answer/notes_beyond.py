"""Notes on what lies beyond the step: who offloads, moments that the ledger has no rule for, lengths."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.check_acting import acts
from trainledger.answer.check_offload import offloads_inputs
from trainledger.facts.option_row import Direction
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.torchao_offload import HOST_STEP
from trainledger.facts.torchtune import TRL_PLAIN
from trainledger.facts.trainer import TRAINER_BATCH
from trainledger.ledger.host_stepped import steps_on_host
from trainledger.ledger.rank import updates_of
from trainledger.ledger.rows import brings, hides
from trainledger.plan.beyond import Lengths
from trainledger.plan.degrees import degrees
from trainledger.plan.lengths import several
from trainledger.plan.schema import Plan

LOW = Direction.LOW.value
PRETRAIN = "pretrain"  # the task whose rows are cut from one text
PACKING = ("packing", "padding_free")  # options of a Trainer whose rows hold no padding


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
        rows = "one row of a micro-batch's samples end to end" if given.packing == "padding-free" else _rows(plan)
        yield f"lengths: the estimate is that of the longest sample, {plan.batch.sequence:,} tokens a row, {rows}"


def _rows(plan: Plan) -> str:
    """Padded rows, and the mask that is counted with them."""
    counted = hides(plan) and plan.stack.attention not in ("flash", "flex")
    return "padded rows and the mask that hides padding" if counted else "padded rows"


def step_uncounted(plan: Plan) -> Iterator[str]:
    """What an optimizer's step makes besides, which has no rule."""
    updates = updates_of(plan)
    step = updates.row.implementation(updates.implementation)
    if step.uncounted and (plan.adapter is not None or plan.trainable != "none"):
        yield f"optimizer.name: {step.uncounted}; {LOW} ({step.source})"


def beyond_uncounted(plan: Plan) -> Iterator[str]:
    """Moments without a rule."""
    if plan.evaluation is not None and plan.stack.framework == PITHTRAIN and degrees(plan).pp > 1:
        yield f"evaluation: over PithTrain's stages it is no moment; {LOW}"
    if brings(plan):
        yield from _masks(plan)
    elif _unsaid(plan):
        yield (
            "lengths: rows of a micro-batch are taken to be alike; where some are padded, a mask costs PyTorch's flash "
            f"kernel: counted with lengths.padded: true, or where lengths say how samples differ; {LOW}"
        )
    if plan.evaluation is not None and acts(plan):
        yield f"evaluation: beside roles it is no moment; {LOW}"


def _unsaid(plan: Plan) -> bool:
    """Whether rows of a Trainer's batches may hold padding, and the plan says nothing of it."""
    stack = plan.stack
    if plan.lengths is not None or plan.task == PRETRAIN or TRAINER_BATCH.package not in stack.versions:
        return False
    packed = any(stack.options.get(name) for name in PACKING)
    padded = plan.model_copy(update={"lengths": Lengths(padded=True)})
    return stack.attention == "sdpa" and several(plan) and not packed and hides(padded)


def _masks(plan: Plan) -> Iterator[str]:
    """What masks of padded rows take where it is not counted."""
    if not hides(plan):
        yield f"lengths: ranks that share a sequence are counted without a mask of padding; {LOW}"
    elif plan.stack.attention == "flash":
        yield (
            "lengths: what is no padding is gathered before flash-attn's kernel and its result scattered after; "
            f"counted as if rows were full, without a second result in every layer; {LOW}"
        )
