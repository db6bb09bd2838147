"""What a change costs in numbers: operations of recompute, traffic between ranks and over the host's link."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from trainledger.answer.estimate import Estimate
from trainledger.base.units import BITS_PER_BYTE
from trainledger.facts.dtypes import DTYPES
from trainledger.facts.move_prices import HOST_LINK, TENSOR, VOLUMES, WORK
from trainledger.ledger.run import every_of
from trainledger.model.counts import by_block
from trainledger.model.program import Attention
from trainledger.plan.degrees import accumulation, degrees
from trainledger.plan.schema import Plan

CORE = "core_attn"
OPERATIONS = "floating-point operations a step and rank"
SHARE = "of the step's operations"


@dataclass(frozen=True, slots=True)
class Cost:
    """A number of a price: `amount` in `unit` (B, s, ratio or operations), `what` it is, and how it is known."""

    what: str
    amount: float
    unit: str
    why: str


def costs(before: Estimate, after: Estimate) -> tuple[Cost, ...]:
    """What `after` does more (or less, below zero) than `before`, per step and rank. Estimates, each with its rule."""
    return (*_recompute(before, after), *_traffic(before, after), *_within(before, after), *_host(before, after))


def forward_operations(answer: Estimate) -> tuple[float, float]:
    """Operations of one step's forwards on one rank: of the layers' products, and of attention's core.

    2 per weight that a token uses, and 4 per pair of tokens and channel, of which a causal mask needs half; spread over
    tp, cp and pp. Head and embedding are left out: they are never recomputed.
    """
    plan, model = answer.plan, answer.model
    ranks, batch = degrees(plan), plan.batch
    tokens = batch.micro_batch * batch.sequence * accumulation(plan)
    spread = ranks.tp * ranks.cp * ranks.pp
    names = {block.name for block in model.blocks}
    weights = sum(part.layers * part.active for part in by_block(model) if part.name in names)
    channels = sum(
        op.spec.heads * op.spec.head * block.count
        for block in model.blocks
        for op in block.ops
        if isinstance(op.spec, Attention)
    )
    pairs = tokens * batch.sequence * (WORK.causal if model.causal else 1)
    return WORK.forward * weights * tokens / spread, WORK.pair * channels * pairs / spread


def _step_operations(answer: Estimate) -> float:
    """Operations of a step without recompute: forward, inputs' gradients, and the trained weights'."""
    dense, core = forward_operations(answer)
    share = answer.parameters.trainable / answer.parameters.total if answer.parameters.total else 0.0
    return dense * (1 + WORK.inputs + WORK.weights * share) + core * (1 + WORK.inputs + WORK.weights)


def _again(answer: Estimate) -> float:
    """Operations of a step's forwards that run twice."""
    given = answer.plan.stack.recompute
    dense, core = forward_operations(answer)
    if given.kind == "full":
        layers = sum(block.count for block in answer.model.blocks)
        some = given.method == "block" and given.num_layers
        stages = degrees(answer.plan).pp * degrees(answer.plan).vpp
        return (dense + core) * (min(given.num_layers * stages / layers, 1) if some and given.num_layers else 1)
    if given.kind == "selective":
        every = every_of(given.policy)
        if every:
            return (dense + core) / every
        return core if given.modules == (CORE,) else 0.0
    return 0.0


def _recompute(before: Estimate, after: Estimate) -> Iterator[Cost]:
    more = _again(after) - _again(before)
    if more and before.plan.stack.recompute != after.plan.stack.recompute:
        why = "2 for each weight a token uses, 4 for each pair of tokens and channel of attention, causal halves"
        yield Cost("recomputed forward", more, OPERATIONS, why)
        yield Cost("recomputed forward", more / _step_operations(after), SHARE, "forward, and twice that in backward")


def _traffic(before: Estimate, after: Estimate) -> Iterator[Cost]:
    more = _sent(after) - _sent(before)
    if more:
        why = "weights gathered at each forward and backward, gradients reduced once a step (ZeRO, section 7)"
        yield Cost("sent between data-parallel ranks, each step", more, "B", why)


def _sent(answer: Estimate) -> float:
    plan = answer.plan
    ranks, volume = degrees(plan), VOLUMES[plan.parallel.strategy]
    if ranks.dp == 1 or not answer.parameters.total:
        return 0.0
    local = answer.parameters.total / (ranks.tp * ranks.pp)
    trained = answer.parameters.trainable / answer.parameters.total
    size = DTYPES[_moved(plan)].bits / BITS_PER_BYTE
    return local * size * (volume.micro * accumulation(plan) + volume.step * trained)


def _within(before: Estimate, after: Estimate) -> Iterator[Cost]:
    more = _summed(after) - _summed(before)
    if more:
        why = "two sums of tokens x hidden in each layer's forward, two in its backward, over the tensor-parallel group"
        yield Cost("sent within layers, each step", more, "B", why)


def _summed(answer: Estimate) -> float:
    """Bytes that a rank sends in a step for sums over its tensor-parallel group; recomputed forwards send again."""
    plan, ranks = answer.plan, degrees(answer.plan)
    tokens = plan.batch.micro_batch * plan.batch.sequence * accumulation(plan) / ranks.cp
    layers = sum(block.count for block in answer.model.blocks) / ranks.pp
    forwards = TENSOR.forward * (1 + (plan.stack.recompute.kind == "full"))
    sums = (forwards + TENSOR.backward) * layers * TENSOR.sent * (ranks.tp - 1) / ranks.tp
    return sums * tokens * answer.model.hidden.size * DTYPES[_moved(plan)].bits / BITS_PER_BYTE


def _moved(plan: Plan) -> str:
    return plan.precision.weights if plan.precision.compute not in DTYPES else plan.precision.compute


def _host(before: Estimate, after: Estimate) -> Iterator[Cost]:
    moved = _over_link(after) - _over_link(before)
    if moved:
        yield Cost("over the host's link, each step and rank", moved, "B", "gradients down, updated weights up")
        why = f"at {HOST_LINK.name}; the update itself on the host's processors comes on top"
        yield Cost("time of that", moved / HOST_LINK.bandwidth, "s", why)
    kept = _saved_away(after) - _saved_away(before)
    if kept:
        yield Cost("saved activations over the host's link, each step", kept, "B", "down in forward, up in backward")


def _over_link(answer: Estimate) -> float:
    plan = answer.plan
    if plan.offload.optimizer is None and plan.offload.params is None:
        return 0.0
    ranks = degrees(plan)
    own = answer.parameters.trainable / prod((ranks.shard, ranks.tp, ranks.pp))
    sizes = (DTYPES[plan.precision.gradients].bits, DTYPES[_moved(plan)].bits)
    return own * sum(sizes) / BITS_PER_BYTE


def _saved_away(answer: Estimate) -> float:
    """Bytes of activations that leave the device and come back in a step."""
    if answer.plan.offload.activations is None:
        return 0.0
    held = sum(line.unit * copies for line, copies in answer.ledger.host if line.account.value == "activations")
    return (held + held) * accumulation(answer.plan)
