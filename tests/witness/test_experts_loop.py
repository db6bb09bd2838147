"""Experts one after the other in plain PyTorch: births, deaths and totals against the written loop's, in order.

Places of rows are made outside of the comparison: a dispatch mode on a CPU sees another search than a device's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from tests.witness.storages import Storages, Watching
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, INT64, DType
from trainledger.ledger import layers
from trainledger.ledger.engine import Backward
from trainledger.ledger.experts_loop import looped, rows_of
from trainledger.ledger.frame import Frame, Setting
from trainledger.ledger.nn import flat_linear
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.program import ActKind, Looped, LowRank, Role, Weight

TOKENS, HIDDEN, WIDTH, EXPERTS, TOP, RANK = 96, 256, 320, 6, 2, 16


def ours(load: float) -> tuple[list[int], list[int]]:
    """Totals at every birth, forward and backward."""
    tape = Tape(None)
    hidden, inner, slots = Axis(Dim.HIDDEN, HIDDEN), Axis(Dim.FFN, WIDTH), Axis(Dim.SLOTS, TOP)
    tokens = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS))
    dims = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    experts = [[Weight(f"{at}.{name}", size, Role.EXPERT) for name, size in dims.items()] for at in range(EXPERTS)]
    x, scores = tape.outside((*tokens, hidden), BF16, True), tape.outside((*tokens, slots), BF16, True)

    def linear(weight: Weight, read: int, out: Axis) -> int:
        made = tape.outside(weight.dims, BF16, True, weight)
        return flat_linear(tape, read, (tape.dims[read][0], out), made)

    spec = Looped(TOP, tuple((one[0], one[1], one[2]) for one in experts), ActKind.SILU, load, False)
    out, kept = looped(tape, spec, [x, scores, tape.outside((*tokens, slots), INT64, False)], linear)
    tape.end(kept)
    return told(tape, out)


def theirs(load: float) -> tuple[list[int], list[int]]:
    """The same of PyTorch's own autograd."""
    storages = Storages()
    rows = rows_of(TOKENS * TOP, TOKENS, EXPERTS, load)
    tops = [torch.arange(count) % TOKENS for count in rows]
    which = [torch.zeros(count, dtype=torch.int64) for count in rows]
    make = {"dtype": torch.bfloat16, "requires_grad": True}
    weights = [
        [torch.randn(*size, **make) for size in ((WIDTH, HIDDEN), (WIDTH, HIDDEN), (HIDDEN, WIDTH))] for _ in rows
    ]  # type: ignore[arg-type]
    x, scores = (torch.randn(1, TOKENS, size, **make) for size in (HIDDEN, TOP))  # type: ignore[arg-type]
    for one in (x, scores, *tops, *which, *(weight for expert in weights for weight in expert)):
        storages.see(one, counted=False)
    return watched(storages, (x, scores), weights, (tops, which))


def watched(
    storages: Storages,
    ins: tuple[torch.Tensor, torch.Tensor],
    experts: Sequence[Sequence[Any]],
    places: tuple[list[torch.Tensor], list[torch.Tensor]],
) -> tuple[list[int], list[int]]:
    """Totals at every birth of a forward and its backward."""
    flow = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16)
    with Watching(storages):
        total = forward(ins[0].view(-1, HIDDEN), ins[1].view(-1, TOP), experts, places)
        middle = len(storages.events)
        storages.see(flow)
        total.backward(flow)
        end = len(storages.events)
    return levels(storages.events[:middle]), levels(storages.events[middle + 1 : end])


def forward(
    x: torch.Tensor,
    scores: torch.Tensor,
    weights: Sequence[Sequence[Any]],
    places: tuple[list[torch.Tensor], list[torch.Tensor]],
) -> torch.Tensor:
    total = torch.zeros_like(x)
    for (gate, up, down), top, which in zip(weights, *places, strict=True):
        state = x[None, top].reshape(-1, HIDDEN)
        weighed = functional.silu(product(state, gate)) * product(state, up)
        weighed = product(weighed, down)
        weighed = weighed * scores[top, which, None]
        total.index_add_(0, top, weighed)
    return total


def product(x: torch.Tensor, by: Any) -> torch.Tensor:
    """A linear layer's call, or a product with its weight."""
    return by(x) if isinstance(by, torch.nn.Module) else functional.linear(x, by)  # type: ignore[no-any-return]


def levels(events: Sequence[int]) -> list[int]:
    """The total after every birth, from the first on."""
    level, found = 0, []
    for size in events:
        level += size
        if size > 0:
            found.append(level)
    return found


@pytest.mark.parametrize("load", [1.0, 2.0, 0.0])
def test_every_birth_comes_at_the_same_total(load: float) -> None:
    mine, real = ours(load), theirs(load)
    assert mine[0] == real[0]
    assert mine[1] == real[1]


def ours_adapted(dtype: DType) -> tuple[list[int], list[int]]:
    """Totals at every birth of frozen experts with adapters."""
    tape = Tape(None)
    hidden, inner, slots = Axis(Dim.HIDDEN, HIDDEN), Axis(Dim.FFN, WIDTH), Axis(Dim.SLOTS, TOP)
    tokens = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS))
    dims = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    experts = [[Weight(f"{at}.{name}", size, Role.EXPERT) for name, size in dims.items()] for at in range(EXPERTS)]
    rank = Axis(Dim.RANK, RANK)
    low = {
        one: LowRank(
            Weight(f"{one.name}.A", (rank, one.dims[1]), dtype=dtype, tuned=True),
            Weight(f"{one.name}.B", (one.dims[0], rank), dtype=dtype, tuned=True),
        )
        for expert in experts
        for one in expert
    }
    x, scores = tape.outside((*tokens, hidden), BF16, True), tape.outside((*tokens, slots), BF16, True)
    frame = Frame(tape, Setting(1, TOKENS, "sdpa", BF16, BF16), {}, lambda weight: weight.tuned, {})

    def linear(weight: Weight, read: int, out: Axis) -> int:
        return layers.expert(frame, weight, low[weight], read, out)

    spec = Looped(TOP, tuple((one[0], one[1], one[2]) for one in experts), ActKind.SILU, 1.0, False)
    out, kept = looped(tape, spec, [x, scores, tape.outside((*tokens, slots), INT64, False)], linear)
    tape.end(kept)
    return told(tape, out)


def told(tape: Tape, out: int) -> tuple[list[int], list[int]]:
    forward = run_forward(tape, frozenset({out}), saving=True)
    back = Backward(tape, dict(forward.held), frozenset({tape.store[out]}))
    back.seed(out, "gradient of the sum", 1)  # the caller names it
    back.run(0, len(tape.prims))
    apart = {
        at
        for at, one in enumerate(tape.storages)
        if any(name in one.name for name in ("choice", "which token", "one hot"))
    }
    return tuple(  # type: ignore[return-value]
        levels([tape.storages[abs(e) - 1].size * (1 if e > 0 else -1) for e in events if abs(e) - 1 not in apart])
        for events in (forward.events, back.events)
    )


class Adapted(torch.nn.Module):
    """A frozen linear layer with a low-rank adapter: the same calls as PEFT's, under the same names."""

    def __init__(self, inner: int, outer: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outer, inner, dtype=torch.bfloat16), requires_grad=False)
        self.low_a = torch.nn.Parameter(torch.randn(RANK, inner, dtype=dtype))
        self.low_b = torch.nn.Parameter(torch.randn(outer, RANK, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = functional.linear(x, self.weight)
        dtype = result.dtype
        x = x.to(self.low_a.dtype)
        result = result + functional.linear(functional.linear(x, self.low_a), self.low_b) * 2.0
        return result.to(dtype)


def theirs_adapted(dtype: torch.dtype) -> tuple[list[int], list[int]]:
    """The same of PyTorch's own autograd."""
    storages = Storages()
    rows = rows_of(TOKENS * TOP, TOKENS, EXPERTS, 1.0)
    tops = [torch.arange(count) % TOKENS for count in rows]
    which = [torch.zeros(count, dtype=torch.int64) for count in rows]
    sizes = ((HIDDEN, WIDTH), (HIDDEN, WIDTH), (WIDTH, HIDDEN))
    experts = [[Adapted(*size, dtype) for size in sizes] for _ in rows]
    make = {"dtype": torch.bfloat16, "requires_grad": True}
    x, scores = (torch.randn(1, TOKENS, size, **make) for size in (HIDDEN, TOP))  # type: ignore[arg-type]
    own = [one for expert in experts for layer in expert for one in layer.parameters()]
    for tensor in (x, scores, *tops, *which, *own):
        storages.see(tensor, counted=False)
    return watched(storages, (x, scores), experts, (tops, which))


@pytest.mark.parametrize(("dtype", "real"), [(BF16, torch.bfloat16), (FP32, torch.float32)])
def test_adapters_of_experts_come_at_the_same_totals(dtype: DType, real: torch.dtype) -> None:
    mine, traced = ours_adapted(dtype), theirs_adapted(real)
    assert mine[0] == traced[0]
    assert mine[1] == traced[1]
