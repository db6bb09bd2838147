"""Megatron-Core's shared experts computed while tokens travel (moe_shared_expert_overlap): a layer's operations anew.

Their input is gathered over the tensor-parallel ranks before, and their output reduced after, each by an operation of
its own, so that what the first layer keeps is the whole sequence. They run on a stream of their own.
Source: megatron/core/transformer/moe/shared_experts.py (0.12 to 0.19).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.ledger.mega import Mega
from trainledger.model.operations_megatron import Parallel, Scattered, Whole
from trainledger.model.program import Op

PREFIX = "mlp.shared_experts"
FIRST, LAST = f"{PREFIX}.linear_fc1", f"{PREFIX}.linear_fc2"
# an operation, and which of the shared experts' follow it
AFTER = {"mlp.token_dispatcher": ("linear_fc1", "activation_func"), "mlp.experts": ("linear_fc2",)}


def overlapped(ops: tuple[Op, ...], mega: Mega | None) -> tuple[Op, ...]:
    """The operations, with shared experts' among those of the routed ones where they overlap."""
    if mega is None or mega.routing is None or not mega.routing.overlaps or not any(op.name == FIRST for op in ops):
        return ops
    own = {op.name.rpartition(".")[2]: _apart(op) for op in ops if op.name.startswith(f"{PREFIX}.")}
    hidden = next(op.dims for op in ops if op.name == LAST)
    found: list[Op] = []
    for op in ops:
        if op.name == FIRST:
            found.append(Op(f"{PREFIX}.gather", Whole(), ("n",), ("s",), hidden))
        if not op.name.startswith(f"{PREFIX}."):
            found.append(op)
        found += [own[name] for name in AFTER.get(op.name, ())]
        if op.name == "mlp.token_combine":
            found.append(Op(f"{PREFIX}.scatter", Scattered(), ("s",), ("s",), hidden))
    return tuple(found)


def _apart(op: Op) -> Op:
    """The operation as one that exchanges nothing itself; the first reads what was gathered."""
    if isinstance(op.spec, Parallel):
        op = replace(op, spec=replace(op.spec, apart=True))
    return replace(op, ins=("s",))
