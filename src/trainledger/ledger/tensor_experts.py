"""Routed and shared experts of torchtitan beside tensor parallelism: the collectives around them.

Before May 2026 a rank gathers the whole sequence for its router and experts, and of what all ranks add up each takes
its part; where experts are whole on other ranks, a rank sends rows of its own part of the tokens alone. Later it then
routes its own part of the sequence, for which shared experts gather by themselves.
Sources: torchtitan, experiments/llama4/infra/parallelize.py, apply_moe_ep_tp, and distributed/expert_parallel.py
(d0cdb1433 to c4b409af2); models/common/{moe_sharding,token_dispatcher}.py (963c20cba to b5bcd76c6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainledger.base.dims import Dim
from trainledger.facts.torchtitan import NAME, Change, holds
from trainledger.lines.parts import BY_TENSOR
from trainledger.model.operations_parallel import Copied, Divided, Gathered, Summed
from trainledger.model.program import Experts, Linear, Op, Router
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import expert_tensor_degree
from trainledger.plan.schema import Plan

WHOLE = "whole "  # before the name of what was gathered
SINGLE = "its own "  # before the name under which one layer reads it
FIRST = "gate_proj"  # the shared layer that reads first
ROUTED = "routed"  # what experts leave where shared ones are beside them


@dataclass(frozen=True, slots=True)
class Way:
    """How experts run beside tensor parallelism: its ranks; those that experts, and each expert, are spread over;
    whether a rank routes its own part of the sequence, and adds up results of that part alone; whether each shared
    layer adds up its gradient by itself, and experts that of their rows; whether all tokens' scores weigh results."""

    ranks: int
    experts: int
    each: int
    tokens: bool
    sums: bool
    alone: bool
    adds: bool
    whole: bool

    @property
    def gathers(self) -> bool:
        """Whether the router reads the whole sequence."""
        return not (self.tokens and self.experts > 1)


def way_of(plan: Plan) -> Way:
    """How the version of torchtitan that runs a plan does it."""
    ranks, version = degrees(plan), plan.stack.versions.get(NAME, "")
    each, first = expert_tensor_degree(plan), not holds(Change.PARTIAL_SLOPES, version)
    return Way(
        ranks=ranks.tp,
        experts=ranks.ep,
        each=each,
        tokens=holds(Change.OWN_TOKENS, version),
        sums=holds(Change.OWN_SUMS, version),
        alone=first,
        adds=first and each > 1 and holds(Change.ADDS_SLOPES, version),
        whole=holds(Change.UNSORTS, version),
    )


def span_of(ops: tuple[Op, ...]) -> range:
    """The places of a layer's router, experts and shared experts; empty where it has none."""
    first = next((at for at, op in enumerate(ops) if isinstance(op.spec, Router)), 0)
    found = [at for at, op in enumerate(ops) if isinstance(op.spec, Experts) or ROUTED in op.ins]
    return range(first, found[-1] + 1) if found else range(0)


def around_experts(ops: tuple[Op, ...], way: Way) -> tuple[Op, ...]:
    """These operations with the collectives between them. What was gathered lives until the module returns."""
    name, made = ops[0].ins[0], list[Op]()
    read = WHOLE + name if way.gathers else name
    if way.gathers:
        made.append(Op(ops[0].name, Gathered(way.ranks, Dim.SEQUENCE), (name,), (read,), ()))
    for op in ops:
        made += _one(op, way, name, read)
    if not way.sums:
        last = ops[-1]
        made.append(Op(last.name, Summed(way.ranks, True), last.outs, last.outs, last.dims))
    kept = {out for op in made for out in op.outs if out.startswith((WHOLE, SINGLE))}
    made[-1] = replace(made[-1], drop=(*made[-1].drop, *sorted(kept)))
    return tuple(made)


def _one(op: Op, way: Way, name: str, read: str) -> Iterator[Op]:
    if isinstance(op.spec, Router):
        yield replace(op, ins=(read,))
        if way.gathers and way.experts > 1 and way.each == 1:
            parts = op.outs[-1:] if way.whole else op.outs[1:]
            yield from (Op(op.name, Divided(way.ranks), (one,), (one,), ()) for one in parts)
    elif isinstance(op.spec, Experts):
        over = way.ranks if not way.gathers and not way.sums else 1
        yield replace(op, ins=(read, *op.ins[1:]), spec=replace(op.spec, over=over, adds=way.adds))
        if way.sums and way.gathers:
            yield Op(op.name, Summed(way.ranks, True), op.outs, op.outs, op.dims)
    elif isinstance(op.spec, Linear):
        yield from _shared(op, way, name, read)
    else:
        yield op


def _shared(op: Op, way: Way, name: str, read: str) -> Iterator[Op]:
    """A linear layer of the shared experts, whose inner width is spread over ranks."""
    if not any(axis.dim in BY_TENSOR for axis in op.dims):
        yield op
        if way.sums:
            yield Op(op.name, Summed(way.ranks, True), op.outs, op.outs, op.dims)
        return
    own = f"{SINGLE}{op.name}"
    if way.gathers:
        if way.alone:
            yield Op(op.name, Copied(), (read,), (own,), ())
        yield replace(op, ins=(own if way.alone else read,))
    elif way.sums:  # once for all of them
        if op.name.endswith(FIRST):
            yield Op(op.name, Gathered(way.ranks, Dim.SEQUENCE), (name,), (WHOLE + name,), ())
        yield replace(op, ins=(WHOLE + name,))
    else:
        yield Op(op.name, Gathered(way.ranks, Dim.SEQUENCE), (name,), (own,), ())
        yield replace(op, ins=(own,))
