"""A compiled layer on a tape: what autograd keeps of it once Inductor has split forward from backward.

What a matrix product or an attention kernel reads in backward is written out there, so it is saved; what elementwise
functions and norms between them made is made again from those. Backward's own temporaries stay those of eager mode, an
upper bound.
Source: torch/_functorch/partitioners.py, min_cut_rematerialization_partition: ban_recompute_materialized_backward,
is_materialized_backwards (v2.5 to v2.13).
"""

from __future__ import annotations

from trainledger.ledger.tape import PRODUCTS, Prim, Tape

MADE_AGAIN = frozenset(
    "to mul add sub pow mean rsqrt neg cat slice view silu gelu tanh relu sigmoid split clone expand".split()
)
SUMS = frozenset({"add"})  # of branches: results that are kept whatever is made of them


def compile_layer(tape: Tape) -> None:
    """Rewrite what each primitive of a layer saves."""
    makers = {value: prim for prim in tape.prims for value in prim.outs}
    for at, prim in enumerate(tape.prims):
        if prim.saves and prim.kind in MADE_AGAIN:
            saves = dict.fromkeys(root for value in prim.saves for root in _roots(tape, makers, value))
            tape.prims[at] = prim._replace(saves=tuple(saves))


def _roots(tape: Tape, makers: dict[int, Prim], value: int) -> list[int]:
    """The saved results from which a value is made again: of products and kernels, of sums of branches, and what came
    in. A number of each row, as a norm's, is kept itself."""
    maker = makers.get(value)
    whole = maker is None or maker.kind not in MADE_AGAIN or maker.kind in PRODUCTS
    if whole or tape.dims[value][-1:] == () or tape.dims[value][-1].size == 1:
        return [value]
    if maker is not None and maker.kind in SUMS and all(_varies(tape, one) for one in maker.ins):
        return [value]
    assert maker is not None
    return [root for one in maker.ins for root in _roots(tape, makers, one)]


def _varies(tape: Tape, value: int) -> bool:
    """Whether a value is of tokens and no parameter."""
    return value not in tape.leaf
