"""A gated MLP that runs tile after tile of the sequence, as DeepSpeed's long-sequence training does it.

Forward makes all tiles without a graph and joins their results. Backward runs each tile again, with a graph, and its
backward: gradients of the weights are whole from the first tile on and later ones are added to them; the input's is
filled tile by tile. Middle tiles leave the allocator as they found it, so that one stands for all of them.
Source: deepspeed/runtime/sequence_parallel/ulysses_sp.py, TiledMLP (0.17.2 to 0.19.8); as many tiles as the sequence
holds hidden sizes: arctic_training/model/tiled_compute.py, tiled_mlp_forward_common.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.software import Software
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.ledger.visits import Call
from trainledger.model.program import Act, Linear, Multiply, Op, Tiled

FACTORS = ("gate", "up", "down")


def joined(ops: tuple[Op, ...], software: Software) -> tuple[Op, ...]:
    """The operations with each gated MLP as one, where it runs in tiles."""
    if not software.tiled:
        return ops
    found: list[Op] = []
    at = 0
    while at < len(ops):
        one = _tiled(ops[at : at + len((*FACTORS, Act, Multiply))])
        found.append(one or ops[at])
        at += len((*FACTORS, Act, Multiply)) if one else 1
    return tuple(found)


def _tiled(ops: tuple[Op, ...]) -> Op | None:
    match [op.spec for op in ops]:
        case [Linear(bias=None) as gate, Act(kind), Linear(bias=None) as up, Multiply(None), Linear(bias=None) as down]:
            last = ops[-1]
            tokens = elements(last.dims)
            return Op(last.name, Tiled(gate, up, down, kind, tokens), ops[0].ins, last.outs, last.dims)
    return None


def fits(ops: tuple[Op, ...]) -> bool:
    """Whether these operations have a gated MLP that can run in tiles."""
    return any(_tiled(ops[at : at + len((*FACTORS, Act, Multiply))]) for at in range(len(ops)))


def mlp(f: Frame, op: Op, spec: Tiled, x: int) -> int:
    """The result of all tiles."""
    t, first = f.tape, len(f.tape.prims)
    weights = (spec.gate.weight, spec.up.weight, spec.down.weight)
    values = tuple(f.need(weight) for weight in weights)
    sizes = list(_sizes(t.dims[x][1].size, spec.tokens))
    inner = Axis(Dim.FFN, elements(spec.down.weight.dims) // spec.tokens)
    tiles = [_ahead(t, (x, _tile(t.dims[x], size)), inner, size != sizes[0] or not at) for at, size in enumerate(sizes)]
    grad = t.grad[x] or any(t.grad[value] for value in values)
    out = t.fresh(t.dims[x], t.dtype[x], grad, "results of all tiles")
    steps = tuple(_behind(t, (x, *values), inner, sizes)) if grad else ()
    t.run(Prim("tiled mlp", (x, *values, *tiles), (out,), (x,) if grad else (), steps, ()))
    t.end(tiles)
    f.calls.append(Call(op.name, weights, True, True, first, len(t.prims)))
    return out


def _sizes(sequence: int, tokens: int) -> Iterator[int]:
    """Tokens of each tile: as torch.chunk divides, all alike but the last."""
    count = -(-sequence // tokens)
    size = -(-sequence // count)
    for at in range(0, sequence, size):
        yield min(size, sequence - at)


def _tile(dims: Dims, size: int) -> Dims:
    return (dims[0], Axis(Dim.SEQUENCE, size), *dims[2:])


def _ahead(t: Tape, like: tuple[int, Dims], inner: Axis, whole: bool) -> int:
    """A tile without a graph: its result, and (`whole`) what lives before it. `like`: the input, a tile's dims."""
    x, dims = like

    def run(kind: str, ins: tuple[int, ...], name: str, made: Dims = (*dims[:2], inner)) -> int:
        out = t.fresh(made, t.dtype[x], False, f"tile: {name}")
        return t.run(Prim(kind, ins, (out,), (), (), ()))

    if not whole:
        return run("linear", (x,), "result", dims)
    act = run("act", (run("linear", (x,), "gate"),), "activation")
    product = run("mul", (act, run("linear", (x,), "up")), "product")
    return run("linear", (product,), "result", dims)


def _behind(t: Tape, ins: tuple[int, ...], inner: Axis, sizes: list[int]) -> Iterator[Step]:
    """The input's gradient, then tiles one after the other: the first, one that stands for those between, the last."""
    yield Step(Code.GRAD, 0)
    before: int | None = None
    kinds = sizes[:1] + sizes[1:2] + ([sizes[-1]] if sizes[-1] != sizes[0] and sizes[2:] else [])
    for at, size in enumerate(kinds):
        made = _Tile(t, ins, (_tile(t.dims[ins[0]], size), inner), not at)
        yield from made.again(before)
        yield from made.back()
        before = made.result
    if before is not None:
        yield Step(Code.DEAD, 0, before)


class _Tile:
    """One tile's forward with a graph, and its backward."""

    def __init__(self, t: Tape, ins: tuple[int, ...], shape: tuple[Dims, Axis], first: bool) -> None:
        self.t, self.ins, self.first = t, ins, first
        self.dims, self.wide = shape[0], (*shape[0][:2], shape[1])
        self.gate, self.act, self.up, self.product = (
            self._made(self.wide, name) for name in ("gate", "activation", "up", "product")
        )
        self.result = self._made(self.dims, "result, run again")

    def _made(self, dims: Dims, name: str) -> int:
        return aten.temporary(self.t, dims, self.t.dtype[self.ins[0]], f"tile: {name}")

    def again(self, before: int | None) -> Iterator[Step]:
        """Forward: all is saved, but the result, which the loop names until the next tile's is there (`before`)."""
        for one in (self.gate, self.act, self.up, self.product, self.result):
            yield Step(Code.BORN, 0, one)
        if before is not None:
            yield Step(Code.DEAD, 0, before)

    def back(self) -> Iterator[Step]:
        """Backward: down, product, up, activation, gate; both factors' gradients of the input are added up."""
        product, act, up, gate = (
            self._made(self.wide, f"gradient of the {name}") for name in ("product", "activation", "up", "gate")
        )
        inputs = [self._made(self.dims, f"gradient of the input, by {name}") for name in ("up", "gate", "both")]
        yield from self._weight("down", [product])
        yield from self._ended(self.product)
        yield from (Step(Code.BORN, 0, up), Step(Code.BORN, 0, act))
        yield from self._ended(product, self.act, self.up)
        yield from self._weight("up", inputs[:1])
        yield from self._ended(up)
        yield Step(Code.BORN, 0, gate)
        yield from self._ended(act, self.gate)
        yield from self._weight("gate", inputs[1:])
        yield from self._ended(gate, *inputs)

    def _weight(self, name: str, others: list[int]) -> Iterator[Step]:
        """A linear layer's gradients: of its weight, which is kept or added to what is, and then of what it read."""
        at, added = FACTORS.index(name) + 1, list[int]()
        if self.t.grad[self.ins[at]] and self.first:
            yield Step(Code.GRAD, at)
        elif self.t.grad[self.ins[at]]:
            value = self.ins[at]
            added = [aten.temporary(self.t, self.t.dims[value], self.t.dtype[value], "tile: gradient of a weight")]
            yield Step(Code.BORN, 0, added[0])
        yield Step(Code.BORN, 0, others[0])
        yield from self._ended(*added)
        for one in others[1:]:
            yield Step(Code.BORN, 0, one)

    @staticmethod
    def _ended(*storages: int) -> Iterator[Step]:
        for one in storages:
            yield Step(Code.DEAD, 0, one)
