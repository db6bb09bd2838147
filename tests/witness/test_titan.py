"""What autograd keeps of layers written as torchtitan writes them, run by PyTorch, against the ledger's program."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from tests.witness.saved import EMBEDDING, of_ledger
from trainledger.facts.torchtitan import SAVED
from trainledger.ledger.rank import rank_ledger
from trainledger.model.build import model_of

torch = pytest.importorskip("torch")

BATCH, TOKENS, WIDTH, INNER, HEADS, KEYS, LAYERS = 1, 512, 256, 640, 4, 2, 3
HEAD = WIDTH // HEADS
SMALL = 64  # bytes: random states, which CPU kernels lack
Kept = Counter[tuple[str, int]]


def norm(x: Any, weight: Any) -> Any:
    high = x.float()
    return (high * torch.rsqrt(high.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * weight


def turned(x: Any, table: Any) -> Any:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * table).flatten(3).type_as(x)


def spread(x: Any) -> Any:
    wide = x[:, :, :, None, :].expand(BATCH, TOKENS, KEYS, HEADS // KEYS, HEAD)
    return wide.reshape(BATCH, TOKENS, HEADS, HEAD)


def layer(x: Any, w: dict[str, Any], table: Any) -> Any:
    normed = norm(x, w["n1"])
    q, k, v = (torch.nn.functional.linear(normed, w[name]).view(BATCH, TOKENS, -1, HEAD) for name in "qkv")
    q, k = turned(q, table), turned(k, table)
    q, k, v = (one.transpose(1, 2) for one in (q, spread(k), spread(v)))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out = out.transpose(1, 2).contiguous().view(BATCH, TOKENS, -1)
    h = x + torch.nn.functional.linear(out, w["o"])
    normed = norm(h, w["n2"])
    gate, up = (torch.nn.functional.linear(normed, w[name]) for name in ("w1", "w3"))
    return h + torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, w["w2"])


def weights() -> dict[str, Any]:
    shapes = {
        "n1": (WIDTH,), "n2": (WIDTH,), "q": (WIDTH, WIDTH), "k": (KEYS * HEAD, WIDTH), "v": (KEYS * HEAD, WIDTH),
        "o": (WIDTH, WIDTH), "w1": (INNER, WIDTH), "w3": (INNER, WIDTH), "w2": (WIDTH, INNER),
    }  # fmt: skip
    return {name: torch.randn(*shape, dtype=torch.bfloat16, requires_grad=True) for name, shape in shapes.items()}


def policy() -> Callable[[], Any]:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default

    def contexts() -> Any:
        count = Counter[bool]()

        def keeps(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            if op == torch.ops.aten.mm.default:
                count[ctx.is_recompute] += 1
            listed = op in (torch.ops.aten.mm.default, attention)
            skipped = op == torch.ops.aten.mm.default and count[ctx.is_recompute] % SAVED.every == 0
            return CheckpointPolicy.MUST_SAVE if listed and not skipped else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(keeps)

    return contexts


def of_torch(recompute: Any) -> Kept:
    """Storages made by a forward of the layers, and alive after it."""
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.checkpoint import checkpoint

    made: dict[int, Any] = {}

    class Storages(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for one in torch.utils._pytree.tree_leaves(out):
                if isinstance(one, torch.Tensor) and one.untyped_storage()._cdata not in made:
                    store = one.untyped_storage()
                    made[store._cdata] = (StorageWeakRef(store), str(one.dtype).removeprefix("torch."), store.nbytes())
            return out

    table = torch.view_as_complex(torch.randn(1, TOKENS, 1, HEAD // 2, 2))
    params = [weights() for _ in range(LAYERS)]
    x = torch.randn(BATCH, TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    own = {x.untyped_storage()._cdata, table.untyped_storage()._cdata}
    own |= {one.untyped_storage()._cdata for row in params for one in row.values()}
    first = h = x * 1  # named to the end, so that no other storage takes its place
    own.add(first.untyped_storage()._cdata)
    saved: dict[int, tuple[str, int]] = {}
    if recompute == "none":

        def keep(one: Any) -> Any:
            store = one.untyped_storage()
            if store._cdata not in own and one.dtype != torch.complex64:
                saved[store._cdata] = (str(one.dtype).removeprefix("torch."), store.nbytes())
            return one

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
            for row in params:
                h = layer(h, row, table)
    else:
        context = {"context_fn": policy()} if recompute != "full" else {}
        with Storages():
            for row in params:
                h = checkpoint(layer, h, row, table, use_reentrant=False, preserve_rng_state=False, **context)
        gc.collect()
        result = made.pop(h.untyped_storage()._cdata)  # as many as there are inputs
        saved[0] = result[1:]
        for key, (ref, dtype, size) in made.items():
            if key not in own and not ref.expired():
                saved[key] = (dtype, size)
    return Counter(one for one in saved.values() if one[1] > SMALL)


def of_program(recompute: Any) -> Kept:
    stack = {"framework": "torchtitan", "versions": {"torchtitan": "5940ddeb532c"}, "recompute": recompute}
    plan = plan_of(
        {**LLAMA, "num_hidden_layers": LAYERS}, stack=stack, batch={"micro_batch": BATCH, "sequence": TOKENS}
    )
    parts = of_ledger(rank_ledger(plan, model_of(plan), "sm80"), LAYERS)
    names = {"bf16": "bfloat16", "fp32": "float32"}
    found: Kept = Counter()
    for part in (EMBEDDING, *(str(at) for at in range(LAYERS))):
        for (dtype, size, _), count in parts[part].items():
            if size > SMALL and dtype in names:
                found[names[dtype], size] += count
    return found


@pytest.mark.parametrize("recompute", ["none", {"kind": "full"}, {"kind": "selective", "policy": "op"}])
def test_layers_keep_what_pytorch_keeps(recompute: Any) -> None:
    word = recompute if isinstance(recompute, str) else recompute["kind"]
    assert of_program(recompute) == of_torch(word)
