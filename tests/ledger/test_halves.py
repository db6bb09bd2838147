"""A backward in two passes, held against torch.distributed.pipelining's own, run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.ledger import aten, nn
from trainledger.ledger.activations import activation
from trainledger.ledger.halves import Half, Halves
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.operations import ActKind
from trainledger.model.program import Role, Weight

BATCH, TOKENS, WIDTH, INNER, WORDS = 2, 64, 96, 160, 224
LEAD = (Axis(Dim.BATCH, BATCH), Axis(Dim.SEQUENCE, TOKENS))
NAMES = ("gate", "up", "down", "norm", "last", "head")  # as a module lists them, norms behind matrices


def weight(name: str, *sizes: int) -> Weight:
    dims = tuple(Axis(Dim.FFN if at == 0 else Dim.HIDDEN, size) for at, size in enumerate(sizes))
    return Weight(name, dims, *((Role.NORM,) if len(sizes) == 1 else ()))


WEIGHTS = {
    "gate": weight("gate", INNER, WIDTH),
    "up": weight("up", INNER, WIDTH),
    "down": weight("down", WIDTH, INNER),
    "norm": weight("norm", WIDTH),
    "last": weight("last", WIDTH),
    "head": weight("head", WORDS, WIDTH),
}


def written(ends: bool) -> tuple[Tape, int, int]:
    """A layer's feed-forward with its residual; with `ends` a norm, a head and a function behind these."""
    tape = Tape()
    hidden: Dims = (*LEAD, Axis(Dim.HIDDEN, WIDTH))
    inner: Dims = (*LEAD, Axis(Dim.FFN, INNER))
    x = tape.inherit(hidden, FP32, True, "x")
    params = {name: tape.outside(one.dims, FP32, True, one) for name, one in WEIGHTS.items()}
    normed = nn.layer_norm(tape, x, params["norm"], None)
    gate, up = (nn.linear(tape, normed, inner, params[name]) for name in ("gate", "up"))
    act = activation(tape, ActKind.SILU, gate)
    product = aten.mul(tape, act, up)
    out = aten.add(tape, x, nn.linear(tape, product, hidden, params["down"]))
    if ends:
        again = nn.layer_norm(tape, out, params["last"], None)
        words: Dims = (*LEAD, Axis(Dim.VOCAB, WORDS))
        out = activation(tape, ActKind.SILU, nn.linear(tape, again, words, params["head"]))
    return tape, x, out


def alive(tape: Tape, events: Sequence[int], start: set[int]) -> set[int]:
    found = set(start)
    for event in events:
        (found.add if event > 0 else found.discard)(abs(event) - 1)
    return found


def size(tape: Tape, storages: set[int]) -> int:
    total = 0
    for one in storages:
        count = 1
        for axis in tape.storages[one].dims:
            count *= axis.size
        total += tape.storages[one].dtype.bytes_of(count)
    return total


def highest(tape: Tape, events: Sequence[int], start: set[int]) -> int:
    """The most bytes alive after an event."""
    return max(size(tape, alive(tape, events[:at], start)) for at in range(1, len(events) + 1))


def of_ledger(ends: bool) -> list[int]:
    """Bytes alive after forward, after the pass of inputs, and after that of weights: without the parameters, their
    gradients, and the gradient of the output, which the caller holds; and the most that there are in each pass, with
    these gradients."""
    tape, x, out = written(ends)
    forward = run_forward(tape, frozenset({out, x}), saving=True)
    there = alive(tape, forward.events, {tape.store[x]})
    sizes, most, gone = [size(tape, there)], list[int](), set[int]()
    for half in (Half.INPUTS, Half.WEIGHTS):
        back = Halves(tape, dict(forward.held), frozenset({tape.store[out], tape.store[x]}), half, x)
        back.order = {WEIGHTS[name]: at for at, name in enumerate(NAMES)}
        made: set[int] = set()
        back.leaf = lambda weight, storage, made=made: made.add(storage) or []  # type: ignore[misc]
        seed = back.seed(out, "slope", 1)
        back.run(0, len(tape.prims))
        left = alive(tape, back.events, there) - made - {seed}
        sizes.append(size(tape, left))
        before, within = back.events[: back.span.start], back.events[back.span.start : back.span.stop]
        most.append(highest(tape, within, alive(tape, before, there | {seed}) - gone))
        gone = {-event - 1 for event in back.events[back.span.stop :]}  # with the graph's end, before the next pass
    return sizes + most


@contextmanager
def counted(params: Sequence[Any]) -> Iterator[Any]:
    """Bytes of storages that operations have made and that are still there, and the most that there were."""
    torch = pytest.importorskip("torch")
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    seen: dict[int, tuple[Any, int]] = {}
    peak = [0]

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            for one in tree_leaves(made):
                if isinstance(one, torch.Tensor):
                    store = one.untyped_storage()
                    seen[store._cdata] = (StorageWeakRef(store), store.nbytes())
            peak[0] = max(peak[0], there(params))
            return made

    def there(without: Sequence[Any]) -> int:
        known = {one.untyped_storage()._cdata for one in without}
        return sum(size for key, (ref, size) in seen.items() if not ref.expired() and key not in known)

    with Watch():
        yield there, peak


def of_torch(ends: bool) -> list[int]:
    torch = pytest.importorskip("torch")
    from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

    functional = torch.nn.functional
    params = {name: torch.nn.Parameter(torch.randn(WEIGHTS[name].shape)) for name in NAMES}
    with counted(tuple(params.values())) as (there, peak):
        x = torch.randn(BATCH, TOKENS, WIDTH, requires_grad=True)
        normed = functional.layer_norm(x, (WIDTH,), params["norm"])
        inner = functional.silu(functional.linear(normed, params["gate"])) * functional.linear(normed, params["up"])
        out = x + functional.linear(inner, params["down"])
        if ends:
            again = functional.layer_norm(out, (WIDTH,), params["last"])
            out = functional.silu(functional.linear(again, params["head"]))
            del again
        del normed, inner
        held = list(params.values())
        sizes = [there(held)]
        slope = torch.ones_like(out)
        kept = held if ends else [params[name] for name in NAMES[:-2]]
        peak[0] = 0
        grads, groups = stage_backward_input([out], [slope], [x], iter(kept))
        sizes.append(there([*held, slope]))
        most, peak[0] = [peak[0]], 0
        stage_backward_weight(iter(kept), groups)
        del groups
        sizes.append(there([*held, slope, *(one.grad for one in kept)]))
        assert grads[0] is x.grad
    return [*sizes, *most, peak[0]]


@pytest.mark.parametrize("ends", [False, True])
def test_each_pass_leaves_what_pytorch_leaves(ends: bool) -> None:
    assert of_ledger(ends) == of_torch(ends)
