"""What hooks on the word embedding make of its rows: a gradient that they need, and noise that is added to them.

Sources: transformers/modeling_utils.py, enable_input_require_grads; transformers/integrations/neftune.py,
neftune_post_forward_hook (4.40.2, in trainer_utils.py, to 5.24.0).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.model.program import Noise, Op


def _last(ops: tuple[Op, ...], inside: bool) -> int:
    """Where the word embedding's module returns; -1 where there is none. `inside`: what the model does to the rows at
    once is done by the embedding's own module."""
    first = next((at for at, op in enumerate(ops) if op.ins == ("input_ids",)), -1)
    return max((at for at, op in enumerate(ops) if at == first or (inside and op.name == ops[first].name)), default=-1)


def asked(ops: tuple[Op, ...], inside: bool) -> tuple[Op, ...]:
    """The prologue whose word embedding's result is made to need a gradient."""
    last = _last(ops, inside)
    if last < 0:
        return ops
    return (*ops[:last], replace(ops[last], asked=True), *ops[last + 1 :])


def noised(ops: tuple[Op, ...], inside: bool) -> tuple[Op, ...]:
    """The prologue with noise on the word embedding's result: hooks run in the order in which they were made, that of
    the noise last, since training begins with it."""
    last = _last(ops, inside)
    if last < 0:
        return ops
    rows = ops[last].outs[:1]
    return (*ops[: last + 1], Op(ops[last].name, Noise(), rows, rows, ops[last].dims), *ops[last + 1 :])
