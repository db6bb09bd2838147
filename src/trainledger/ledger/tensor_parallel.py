"""One rank's part of a model under PyTorch's tensor parallelism, with the collectives around its layers.

A linear layer whose outputs are spread reads the whole sequence; the result of one whose inputs are spread is added up
over ranks, and with sequence parallelism each takes its part of the tokens. The table of words is spread by words.
Sources: torch/distributed/tensor/parallel/style.py (v2.4 to v2.13); torchtitan, apply_tp (2024-05 to 2026-04).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from trainledger.base.dims import Dim, Dims
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.ledger.losses_parallel import SPREAD
from trainledger.ledger.tensor_experts import WHOLE, Way, around_experts, span_of, way_of
from trainledger.lines.local import local_model
from trainledger.lines.parts import BY_TENSOR, Parts
from trainledger.model.mapped import mapped
from trainledger.model.operations import Low, Scales
from trainledger.model.operations_parallel import Collective, Copied, Gathered, Summed
from trainledger.model.program import Attention, Embed, Linear, Model, Op, Repeat, Role, Weight
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan


class Side(StrEnum):
    """Which side of a weight is spread over ranks."""

    COLUMN = "column"  # its outputs
    ROW = "row"  # its inputs, or the words of a table
    WHOLE = "whole"  # neither, but it reads the whole sequence: into a latent
    LATENT = "latent"  # its outputs, of a latent that every rank has whole
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class How:
    """Ranks; whether norms and residuals are spread along the sequence; whether the loss reads spread logits; whether
    each linear layer takes its input by itself; how routed experts run; whether layers add up in place, inside their
    own functions, so that nothing new is made (ColossalAI); whether ranks exchange tensors while products run."""

    ranks: int
    sequence: bool
    loss: bool
    alone: bool
    way: Way
    inside: bool
    fused: bool


def spread(model: Model, plan: Plan) -> Model:
    """This rank's part of the model that a plan trains; the model itself where nothing is spread over ranks."""
    ranks = degrees(plan)
    if ranks.tp == 1:
        return local_model(model, Parts(ep=ranks.ep))
    titan = plan.stack.framework == TORCHTITAN
    alone = not titan and not plan.parallel.sp
    inside = plan.stack.framework == LOW_LEVEL.framework
    fused = bool(plan.stack.compile and plan.parallel.options.get("async_tp"))
    how = How(ranks.tp, plan.parallel.sp, plan.stack.loss == SPREAD, alone, way_of(plan), inside, fused)
    whole = replace(
        model,
        prologue=tuple(_around(model.prologue, replace(how, fused=False))),
        blocks=tuple(replace(block, ops=tuple(_layer(block.ops, how))) for block in model.blocks),
        head=replace(model.head, ops=tuple(_around(model.head.ops, replace(how, fused=False)))),
    )
    part = local_model(whole, Parts(tp=ranks.tp, etp=how.way.each, ep=ranks.ep))
    blocks = tuple(replace(block, ops=tuple(_counted(op, ranks.tp) for op in block.ops)) for block in part.blocks)
    part = replace(part, blocks=blocks)
    return part if inside else _sloped(part, {weight.name: weight.dims[0].size for weight in model.embeddings})


def _sloped(part: Model, rows: Mapping[str, int]) -> Model:
    """The model whose table of words, spread by words, has a gradient of all words on every rank: DTensor runs the
    table's backward on the whole gradient of its rows (embedding_dense_backward), and cuts the result afterwards."""

    def whole(weight: Weight) -> Weight:
        entire = weight.role is Role.EMBEDDING and rows.get(weight.name, 0) > weight.dims[0].size
        return replace(weight, rows=rows[weight.name]) if entire else weight

    prologue = tuple(mapped(op, whole) for op in part.prologue)
    return replace(part, prologue=prologue, embeddings=tuple(whole(weight) for weight in part.embeddings))


def _counted(op: Op, ranks: int) -> Op:
    """An operation that names a number of heads, with this rank's."""
    spec = op.spec
    if isinstance(spec, Attention):
        heads, keys = spec.heads // ranks, max(spec.kv_heads // ranks, 1)
        return replace(op, spec=replace(spec, heads=heads, kv_heads=keys))
    return replace(op, spec=Repeat(spec.heads // ranks)) if isinstance(spec, Repeat) else op


def _layer(ops: tuple[Op, ...], how: How) -> Iterator[Op]:
    """A layer's operations with the collectives between them."""
    experts = span_of(ops)
    if not experts:
        yield from _around(ops, how)
        return
    yield from _around(ops[: experts.start], how)
    yield from around_experts(ops[experts.start : experts.stop], how.way)
    yield from _around(ops[experts.stop :], how)


def _around(ops: tuple[Op, ...], how: How) -> Iterator[Op]:
    """The operations with the collectives between them. What was gathered lives until its module returns."""
    ready = dict[str, str]()  # what was gathered, by the name of its part
    for op in ops:
        side = _side(op)
        if side in (Side.COLUMN, Side.WHOLE) and not how.inside:
            (name,) = op.ins
            if how.alone or name not in ready:
                ready[name] = WHOLE + name
                spec: Collective = Gathered(how.ranks, Dim.SEQUENCE, _low(op), how.fused) if how.sequence else Copied()
                yield Op(op.name, spec, op.ins, (ready[name],), ())
            yield replace(op, ins=(ready[name],))
        elif side is Side.ROW and how.sequence:
            yield _summed(op)
        elif side is Side.LATENT:
            yield Op(op.name, Copied(), op.ins, op.ins, ())
            yield op
        else:
            yield op
        if side is Side.ROW and not how.inside:
            whole = tuple(ready.values())
            ready.clear()
            yield Op(op.name, Summed(how.ranks, how.sequence, _low(op), how.fused), op.outs, op.outs, op.dims, whole)
        elif "logits" in op.outs and not how.loss and max(axis.size for axis in op.dims) > 1:  # one number is whole
            yield Op(op.name, Gathered(how.ranks, Dim.VOCAB), op.outs, op.outs, op.dims)


def _side(op: Op) -> Side:
    """Which side of the operation's weight is spread."""
    spec = op.spec
    if isinstance(spec, Embed):
        return Side.ROW if spec.weight.role is Role.EMBEDDING and _among(spec.weight.dims[:1]) else Side.NEITHER
    if not isinstance(spec, Linear):
        return Side.NEITHER
    if spec.weight.dims[0].dim is Dim.RANK:
        return Side.WHOLE
    if spec.weight.dims[-1].dim is Dim.RANK:
        return Side.LATENT
    return Side.COLUMN if _among(op.dims) else Side.ROW if _among(spec.weight.dims) else Side.NEITHER


def _low(op: Op) -> Low | None:
    """How a product casts its factors before ranks exchange them: scaled by tensor, since one scale is every rank's."""
    low = op.spec.low if isinstance(op.spec, Linear) else None
    return low if low is not None and low.scales is Scales.TENSOR else None


def _summed(op: Op) -> Op:
    """The operation whose result is added up over ranks: a product that casts is told so."""
    spec, low = op.spec, _low(op)
    if not isinstance(spec, Linear) or low is None:
        return op
    return replace(op, spec=replace(spec, low=replace(low, summed=True)))


def _among(dims: Dims) -> bool:
    return any(axis.dim in BY_TENSOR for axis in dims)
