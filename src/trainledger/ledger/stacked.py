"""A parameter that LoRA changes before its module reads it, on a tape, as PEFT's `ParamWrapper` runs it.

A wrapper registers a parametrization around the call of its module, which PyTorch runs once to check it and once more
when the module first reads the parameter; the result is kept until the call returns, and by autograd as any factor is.
Sources: peft/tuners/lora/layer.py (0.19.1 to 0.21.2); torch/nn/utils/parametrize.py; derivatives.yaml, baddbmm (v2.13).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import DType
from trainledger.facts.peft_experts import FACTORS
from trainledger.facts.versions import at_least
from trainledger.ledger import aten, nn
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Fold
from trainledger.model.stacked import STACKED


class Folded:
    """A parameter with its adapter: its own value, and what the wrapper has: both factors, or their product."""

    __slots__ = ("factors", "made", "own", "plain")

    def __init__(self, own: int, factors: tuple[int, ...], plain: bool) -> None:
        self.own, self.factors, self.plain = own, factors, plain
        self.made: int | None = None

    def read(self, t: Tape) -> int:
        """The adapted parameter, made as it is first read."""
        if self.made is None:
            self.made = self._made(t, "adapted parameter")
        return self.made

    def check(self, t: Tape) -> None:
        """What PyTorch makes to check a parametrization, and drops."""
        t.end([self._made(t, "adapted parameter, as it is registered")])

    def _made(self, t: Tape, name: str) -> int:
        if len(self.factors) == 1:
            return aten.add(t, self.own, self.factors[0])
        out = t.fresh(t.dims[self.own], t.dtype[self.own], True, name)
        ins = (self.own, *self.factors)
        return t.run(Prim("bmm", ins, (out,), self.factors, self._steps(t), ()))

    def _steps(self, t: Tape) -> tuple[Step, ...]:
        if self.plain:
            return tuple(Step(Code.GRAD, at) for at in (1, 2))
        steps: list[Step] = []
        for at, factor in enumerate(self.factors, 1):
            once = aten.temporary(t, t.dims[factor], t.dtype[factor], "gradient before it is scaled")
            steps += [Step(Code.BORN, at, once), Step(Code.GRAD, at), Step(Code.DEAD, at, once)]
        return tuple(steps)


def fold(t: Tape, given: Fold, values: tuple[int, int, int], release: str) -> Folded:
    """The parameter with its adapter: its own value and those of `down` and `up`, in a release of PEFT."""
    own, down, up = values
    stacked = len(t.dims[own]) == STACKED
    left, right = _by_expert(t, given, own, (down, up)) if stacked else (up, down)
    if stacked and at_least(release or None, FACTORS.release):
        dtype = t.dtype[own]
        made = Folded(own, (aten.to(t, left, dtype), aten.to(t, right, dtype)), given.plain)
    else:
        low = nn.lowered(t, left), nn.lowered(t, right)
        made = Folded(own, (_product(t, low, t.dims[own], t.dtype[own]),), True)
    made.check(t)
    return made


def _by_expert(t: Tape, given: Fold, own: int, factors: tuple[int, int]) -> tuple[int, int]:
    """Views of both factors with a matrix for each expert, in the order of their product."""
    down, up = factors
    experts, rows = t.dims[own][0], t.dims[down][0]
    rank = Axis(Dim.RANK, rows.size // experts.size)
    inner, outer = t.dims[down][1], t.dims[up][0]
    # experts are the last dim of `up`: its gradient is copied to that order
    if given.turned:
        return aten.heads_first(t, down, (experts, inner, rank)), aten.heads_first(t, up, (experts, rank, outer))
    return aten.heads_first(t, up, (experts, outer, rank)), aten.view(t, down, (experts, rank, inner))


def _product(t: Tape, factors: tuple[int, int], dims: Dims, dtype: DType) -> int:
    """up times down, scaled, in the parameter's dtype."""
    out = t.fresh(dims, t.dtype[factors[0]], True, "product of both factors")
    t.run(Prim("bmm", factors, (out,), factors, (Step(Code.GRAD, 0), Step(Code.GRAD, 1)), ()))
    scaled = aten.scale(t, out)
    return aten.to(t, scaled, dtype)
