"""Transformer Engine's linear layers with 8-bit products, as primitives.

A layer reads 8-bit copies of its input and of its weight (whose copies the process keeps, see `mega_fp8`), saves the
input's copy by columns, or by rows where ranks exchange it, and quantises the gradient that comes back.
Source: transformer_engine/pytorch/module/{linear,layernorm_linear,grouped_linear,base}.py (2.7 to 2.17).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.dims import Dim, Dims, stretched
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_embedding import cut
from trainledger.ledger.mega_fp8 import Quant, bytes_of, copies
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.tape import Code, Prim, Step, born, dead
from trainledger.model.operations_megatron import Parallel


@dataclass(frozen=True, slots=True)
class Read:
    """An input as a product reads it: values of its copies; those of them, or the input, that are saved."""

    made: tuple[int, ...]
    saved: tuple[int, ...]


def quant_of(f: Frame) -> Quant | None:
    """How products are taken in 8 bits; None where they are not."""
    engine = mega_of(f).engine
    return engine.quant if engine is not None else None


def needed(f: Frame) -> Quant:
    """How products are taken in 8 bits, where they are."""
    quant = quant_of(f)
    assert quant is not None
    return quant


def _values(f: Frame, quant: Quant, dims: Dims, uses: tuple[bool, bool]) -> tuple[int, ...]:
    made = bytes_of(list(copies(quant, dims, *uses)))
    return tuple(f.tape.fresh(dims, dtype, False, name) for name, dims, dtype in made)


def temporaries(f: Frame, quant: Quant, dims: Dims, what: str, rows: bool = True) -> list[int]:
    """Copies that live inside a function."""
    made = bytes_of(list(copies(quant, dims, rows)))
    return [aten.temporary(f.tape, dims, dtype, f"{what} {name}") for name, dims, dtype in made]


def read(f: Frame, quant: Quant, x: int, gathers: bool, keep: bool = False) -> Read:
    """The copies of an input, in one kernel. `gathers`: ranks exchange it; `keep`: it is saved as it came."""
    t = f.tape
    found = _read(f, quant, t.dims[x], gathers, keep)
    t.run(Prim("quantise", (x,), found.made, (), (), ()))
    return Read(found.made, (x,)) if keep else found


def _read(f: Frame, quant: Quant, dims: Dims, gathers: bool, keep: bool) -> Read:
    rows_only = gathers and quant.recipe.rows_gathered
    rows = _values(f, quant, dims, (True, False))
    columns = _values(f, quant, dims, (False, True)) if quant.apart and not rows_only and not keep else ()
    return Read((*rows, *columns), columns or rows)


def normalised(f: Frame, quant: Quant, x: int, gathers: bool, statistics: tuple[int, ...]) -> Read:
    """A norm's output in 8 bits: written so by its kernel, or quantised from one that dies at once."""
    t = f.tape
    found = _read(f, quant, t.dims[x], gathers, False)
    work = () if quant.recipe.fused else (aten.temporary(t, t.dims[x], t.dtype[x], "normalised"),)
    t.run(Prim("te norm", (x,), (*found.made, *statistics), (), (), work))
    return found


def column(f: Frame, spec: Parallel, x: int, dims: Dims, ranks: int) -> int:
    """A layer over its outputs that has no norm of its own; `ranks`: over which the input is spread."""
    t, quant = f.tape, needed(f)
    front = t.dims[x][: -len([one for one in t.dims[x] if one.dim not in (Dim.BATCH, Dim.SEQUENCE)])]
    ins = [x, f.need(spec.weight)]
    if spec.bias is not None and not spec.later:
        ins.append(f.need(spec.bias))
    keep = quant.keeps_input(spec.weight.name)
    found = read(f, quant, x, ranks > 1, keep)
    work = gathered(f, quant, t.dims[x], ranks)
    out = t.fresh((*stretched(front, ranks), *dims), t.dtype[x], True, "output")
    slopes = temporaries(f, quant, t.dims[out], "gradient")
    again = temporaries(f, quant, t.dims[x], "input", rows=ranks > 1) if keep else []
    spread = spread_work(f, quant, x, ranks)
    learned = tuple(Step(Code.GRAD, at) for at in range(1 + mega_of(f).added, len(ins)))
    ahead, behind = [*slopes, *again, *spread], [*spread, *again, *slopes]
    steps = (*born(*ahead), Step(Code.GRAD, 0), *learned, *dead(*behind))
    t.run(Prim("te linear", tuple(ins), (out,), (*found.saved, ins[1]), steps, work))
    t.end(found.made)
    return out


def gathered(f: Frame, quant: Quant, dims: Dims, ranks: int) -> tuple[int, ...]:
    """The input's rows of all ranks."""
    if ranks == 1:
        return ()
    made = bytes_of(list(copies(quant, stretched(dims, ranks), True, False)))
    return tuple(aten.temporary(f.tape, dims, dtype, f"gathered input {name}") for name, dims, dtype in made)


def spread_work(f: Frame, quant: Quant, x: int, ranks: int) -> list[int]:
    """Of an input that ranks exchange, in backward: what is gathered, also by columns, and the whole gradient."""
    if ranks == 1:
        return []
    t = f.tape
    whole = stretched(t.dims[x], ranks)
    made = temporaries(f, quant, whole, "gathered input", rows=quant.recipe.rows_gathered)
    return [*made, aten.temporary(t, whole, t.dtype[x], "whole gradient of the input")]


def row(f: Frame, spec: Parallel, x: int, dims: Dims, ranks: int) -> int:
    """A layer spread over its inputs; of a gradient that ranks gather, the 8-bit copies are."""
    t, mega, quant = f.tape, mega_of(f), needed(f)
    front = tuple(one for one in t.dims[x] if one.dim in (Dim.BATCH, Dim.SEQUENCE)) or t.dims[x][:-1]
    whole = (*front, *dims)
    keep = quant.keeps_input(spec.weight.name)
    found = read(f, quant, x, False, keep)
    out = t.fresh(cut(whole, ranks), t.dtype[x], True, "output")
    work = (aten.temporary(t, whole, t.dtype[x], "sum before its part is taken"),) if ranks > 1 else ()
    slopes = temporaries(f, quant, whole, "gradient")
    again = temporaries(f, quant, t.dims[x], "input", rows=False) if keep else []
    learned = () if mega.added else (Step(Code.GRAD, 1),)
    steps = (*born(*slopes, *again), Step(Code.GRAD, 0), *learned, *dead(*again, *slopes))
    ins = (x, f.need(spec.weight))
    t.run(Prim("te linear", ins, (out,), (*found.saved, ins[1]), steps, work))
    t.end(found.made)
    return out
