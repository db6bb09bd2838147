"""What PyTorch's autograd keeps of experts beside tensor parallelism: the operations that torchtitan's versions run on
one rank, on the CPU, with collectives that move nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

HIDDEN, INNER, COUNT, TOP_K = 128, 64, 8, 2
TOKENS = 64  # of one rank of tensor parallelism
SMALL = 512  # bytes: where groups end, and counts
Kept = Counter[tuple[str, int]]


class Degrees(NamedTuple):
    """Ranks of tensor parallelism, of experts, and of each expert."""

    tp: int
    ep: int
    each: int


@contextmanager
def ranks(degrees: Degrees) -> Iterator[tuple[Any, str]]:
    """A mesh of tensor parallelism, and the group of experts' ranks."""
    torch = pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=max(degrees.tp, degrees.ep), store=FakeStore())
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (degrees.tp,)) if degrees.tp > 1 else None
        group = dist.new_group(list(range(degrees.ep)))
        yield mesh, group
    finally:
        dist.destroy_process_group()


class Model:
    """Weights of one rank and the pieces of a layer with experts."""

    def __init__(self, degrees: Degrees, mesh: Any, group: Any) -> None:
        import torch

        self.torch, self.degrees, self.mesh, self.group = torch, degrees, mesh, group

        def weight(*sizes: int) -> Any:
            return torch.randn(*sizes, dtype=torch.bfloat16, requires_grad=True)

        inner, count, shared = INNER // degrees.each, COUNT // degrees.ep, INNER // degrees.tp
        self.gate = weight(COUNT, HIDDEN)
        self.experts = weight(count, inner, HIDDEN), weight(count, inner, HIDDEN), weight(count, HIDDEN, inner)
        self.shared = weight(shared, HIDDEN), weight(shared, HIDDEN), weight(HIDDEN, shared)

    def gathered(self, x: Any) -> Any:
        """The whole sequence."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        spread = DTensor.from_local(x, self.mesh, (Shard(1),), run_check=False)
        return spread.redistribute(placements=(Replicate(),)).to_local()

    def scattered(self, x: Any) -> Any:
        """This rank's part of the sum over ranks."""
        from torch.distributed.tensor import DTensor, Partial, Shard

        spread = DTensor.from_local(x, self.mesh, (Partial(),), run_check=False)
        return spread.redistribute(placements=(Shard(1),)).to_local()

    def routed(self, rows: Any, late: bool) -> tuple[Any, Any]:
        """Scores and experts of each token."""
        torch = self.torch
        if late:
            logits = torch.nn.functional.linear(rows.float(), self.gate.float())
        else:
            logits = torch.nn.functional.linear(rows, self.gate).float()
        probs = torch.softmax(logits, dim=1)
        chosen = torch.topk(probs, k=TOP_K, dim=-1, sorted=False)[1]
        return probs.gather(dim=1, index=chosen) * 1.0, chosen

    def unsorted(self, rows: Any, scores: Any, chosen: Any) -> Any:
        """The experts' results by token and choice, times the scores of all tokens."""
        torch = self.torch
        place = torch.argsort(chosen.view(-1), stable=True)
        back = self.ran(rows[place // TOP_K], False)
        whole = torch.zeros((scores.numel(), HIDDEN), dtype=back.dtype)
        whole[place] = back
        product = torch.bmm(scores.reshape(-1, 1, TOP_K), whole.reshape(-1, TOP_K, HIDDEN).float())
        return product.to(rows.dtype).squeeze(1)

    def summed(self, rows: Any, total: Any, scores: Any, chosen: Any, late: bool) -> Any:
        """The experts' results, added up in `total`."""
        torch = self.torch
        place = torch.argsort(chosen.view(-1), stable=True)
        score, token = scores.view(-1)[place], place // TOP_K
        by_expert = token.reshape(-1, 1).expand(-1, HIDDEN)
        back = self.ran(rows[token] if late else torch.gather(rows, 0, by_expert), late)
        weighed = (back.float() * score.reshape(-1, 1)).to(rows.dtype)
        return total.scatter_add(0, by_expert, weighed)

    def ran(self, sent: Any, late: bool) -> Any:
        """Rows by expert through the experts, wherever these are."""
        torch, ranks = self.torch, self.degrees.ep
        first, third, second = self.experts
        there = self._exchanged(sent) if ranks > 1 else sent
        order = torch.randperm(len(sent))
        ends = torch.arange(1, len(first) + 1, dtype=torch.int32) * (len(sent) // len(first))
        if not late:
            there = torch.vstack((there, there.new_zeros(there.shape[-1])))
        moved = there[order, :] if ranks > 1 or not late else there

        def product(value: Any, weight: Any) -> Any:
            return torch._grouped_mm(value, weight.transpose(-2, -1), offs=ends)

        inner = torch.nn.functional.silu(product(moved, first)) * product(moved, third)
        out = product(inner, second)
        if ranks > 1 or not late:
            put = out.new_empty(there.shape)
            put[order, :] = out
            out = put if late else put[:-1]
        return self._exchanged(out) if ranks > 1 else out

    def _exchanged(self, rows: Any) -> Any:
        from torch.distributed._functional_collectives import all_to_all_single_autograd

        each = [len(rows) // self.degrees.ep] * self.degrees.ep
        made = all_to_all_single_autograd(rows, each, each, self.group)
        return made.wait() if hasattr(made, "wait") else made

    def beside(self, *reads: Any) -> Any:
        """What shared experts make of their input, given once for each layer that reads it."""
        function, (first, third, second) = self.torch.nn.functional, self.shared
        inner = function.silu(function.linear(reads[0], first)) * function.linear(reads[-1], third)
        return function.linear(inner, second)


def kept(run: Callable[[Model, Any], Any], degrees: Degrees) -> Kept:
    """The storages that autograd keeps of a layer's experts, by dtype and bytes; the input is not among them."""
    torch = pytest.importorskip("torch")
    with ranks(degrees) as (mesh, group):
        model = Model(degrees, mesh, group)
        x = torch.randn(1, TOKENS, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        weights = (x, model.gate, *model.experts, *model.shared)
        own = {one.untyped_storage().data_ptr() for one in weights}
        saved: dict[int, tuple[str, int]] = {}
        held = []

        def keep(one: Any) -> Any:
            plain = getattr(one, "_local_tensor", one)
            store = getattr(plain, "elem", plain).untyped_storage()
            held.append(store)
            if store.data_ptr() not in own and store.nbytes() > SMALL:
                saved[store.data_ptr()] = (str(one.dtype).removeprefix("torch."), store.nbytes())
            return one

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
            out = run(model, x)
        assert out.requires_grad
        return Counter(saved.values())
