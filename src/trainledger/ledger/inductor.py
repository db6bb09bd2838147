"""A compiled layer on a tape: chains of elementwise functions and norms become kernels that make only what is read.

Matrix products, attention and other kernels of their own read tensors that are written out; so are a sum of branches
and the layer's result. What lies between is made inside the kernel that writes one of these, forward and backward. A
kernel needs for its backward what it read, as far as the functions in it do. In a layer that is recomputed, backward
makes again only what something in it reads.
Source: torch/_inductor/scheduler.py, score_fusion and ir.py, realize; torch/_functorch/partitioners.py,
min_cut_rematerialization_partition, must_recompute (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Iterable

from trainledger.facts.collectives import PLANNED
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtune import NAME as TORCHTUNE
from trainledger.facts.versions import at_least
from trainledger.ledger.compiled import MADE_AGAIN, SUMS, compile_layer
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import SCALED, Code, Prim, Step, Tape

FUSED = "fused"
INSIDE = MADE_AGAIN | {"rms_norm", "expand, clone"}


class _Layer:
    """One tape while its chains are found."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.makers = {value: prim for prim in tape.prims for value in prim.outs}
        self.written = {value for prim in tape.prims if prim.kind not in INSIDE for value in prim.ins}
        self.done: set[int] = set()

    def whole(self, value: int) -> bool:
        """Whether a value is written out: what came in, a kernel's result, a sum of branches."""
        maker = self.makers.get(value)
        if maker is None or maker.kind not in INSIDE or value in self.done:
            return True
        return maker.kind in SUMS and all(one not in self.tape.leaf for one in maker.ins) and len(maker.ins) > 1

    def chain(self, value: int) -> tuple[list[int], list[Prim]]:
        """What a value's kernel reads, and the functions in it."""
        roots, found = dict[int, None](), dict[int, Prim]()
        waiting = [value]
        while waiting:
            prim = self.makers[waiting.pop()]
            found[id(prim)] = prim
            for one in prim.ins:
                if self.whole(one):
                    roots[one] = None
                else:
                    waiting.append(one)
        return list(roots), list(found.values())

    def kernel(self, value: int) -> Prim:
        """The kernel that writes a value out."""
        tape = self.tape
        roots, functions = self.chain(value)
        needed = {one for prim in functions for one in prim.saves}
        grad = [at for at, one in enumerate(roots) if tape.grad[one]]
        saves = tuple(one for one in roots if any(self._reads(need, one) for need in needed)) if grad else ()
        return Prim(FUSED, tuple(roots), (value,), saves, tuple(Step(Code.GRAD, at) for at in grad), ())

    def _reads(self, value: int, root: int) -> bool:
        """Whether a value is made of a root."""
        if value == root:
            return True
        if self.whole(value):
            return False
        maker = self.makers.get(value)
        return maker is not None and any(self._reads(one, root) for one in maker.ins)


def fuse(tape: Tape, target: int) -> None:
    """Rewrite a layer's primitives as compiled code runs them; `target`: the layer's result."""
    layer = _Layer(tape)
    prims: list[Prim] = []
    for prim in tape.prims:
        if prim.kind not in INSIDE:
            prims.append(_recast(_Layer(tape), prim) if prim.kind == SCALED else prim)
            continue
        for value in prim.outs:
            if value == target or value in layer.written or layer.whole(value):
                prims.append(_shared(layer, layer.kernel(value)))
                layer.done.add(value)
    tape.prims[:] = prims
    tape.wrapped.clear()  # in a graph there are no subclasses: gradients are added up in place
    tape.ends[:] = [len(prims)] * len(tape.ends)  # what is never written out does not end either
    for at, prim in enumerate(prims):
        for value in (*prim.ins, *prim.outs, *prim.saves):
            tape.ends[value] = at


def _recast(layer: _Layer, prim: Prim) -> Prim:
    """A product of 8 bits casts its input anew in backward, which elementwise functions make again there."""
    found = dict[int, None]()
    for value in prim.saves:
        found |= dict.fromkeys([value] if layer.whole(value) else layer.chain(value)[0])
    return prim._replace(saves=tuple(found))


def _shared(layer: _Layer, kernel: Prim) -> Prim:
    """A kernel that only shows a written tensor in another shape passes its gradient on."""
    store = layer.tape.store
    if any(store[one] == store[kernel.outs[0]] for one in kernel.ins):
        return kernel._replace(steps=tuple(Step(Code.PASS, step.at) for step in kernel.steps))
    return kernel


def needed_again(tape: Tape, kept: Iterable[int]) -> frozenset[int]:
    """The primitives whose results backward reads, or makes others of: those of `kept` as they are, others again."""
    makers = {value: at for at, prim in enumerate(tape.prims) for value in prim.outs}
    there, found = set(kept), set[int]()
    waiting = [value for prim in tape.prims for value in prim.saves]
    while waiting:
        at = makers.get(waiting.pop())
        if at is None or at in found:
            continue
        found.add(at)
        if at not in there:
            waiting += tape.prims[at].ins
    return frozenset(found)


def compile_frame(frame: Frame, target: int) -> None:
    """A layer as the framework's compiler leaves it: what is kept of it, or its kernels too."""
    if not frame.software.compiled:
        return
    if frame.software.framework == TORCHTUNE:
        compile_layer(frame.tape)
    elif frame.software.framework == TORCHTITAN:
        fuse(frame.tape, target)
        frame.tape.planned = not at_least(frame.setting.torch or None, PLANNED.until)
        frame.names.clear()
        frame.calls.clear()
