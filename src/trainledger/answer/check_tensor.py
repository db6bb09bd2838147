"""What of PyTorch's tensor parallelism cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import Problem
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.sharding import SECOND
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.ledger.losses_parallel import SPREAD
from trainledger.ledger.strategy import fsdp_of
from trainledger.lines.parts import BY_TENSOR
from trainledger.model.program import Attention, ClampedExperts, Embed, Experts, Linear, Model, Op
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import expert_tensor_degree
from trainledger.plan.schema import Plan

COLOSSAL = LOW_LEVEL.framework
FRAMEWORKS = ("transformers", "torch", TORCHTITAN, COLOSSAL)  # whose layers PyTorch's styles spread, or its own


def tensor_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan whose tensors are spread over ranks, or that says so of its loss alone."""
    ranks, strategy = degrees(plan), plan.parallel.strategy
    if ranks.tp == 1:
        if plan.stack.loss == SPREAD:
            yield Problem("stack.loss", f"found {SPREAD!r} with tp 1", "it reads logits that tp ranks share")
        if plan.parallel.sp:
            yield Problem("parallel.sp", "found true with tp 1", "it spreads the sequence over tp ranks")
        return
    path, found = "parallel.tp", f"found {ranks.tp}"
    if plan.stack.framework not in FRAMEWORKS:
        yield Problem(path, f"{found} with {plan.stack.framework}", f"{', '.join(FRAMEWORKS)} can be estimated so far")
    if plan.stack.framework == COLOSSAL:
        yield from _colossal(plan)
    elif strategy != "none" and fsdp_of(plan) != SECOND:
        yield Problem(path, f"{found} with {strategy}", "none, fsdp2 and its hsdp can be estimated so far")
    if plan.adapter is not None or plan.quantization is not None:
        yield Problem(path, f"{found} with an adapter or quantised weights", "full training can be estimated so far")
    if plan.stack.kernels:
        yield Problem(path, f"{found} with kernels", "PyTorch's own operations can be spread")
    if plan.parallel.sp and plan.batch.sequence % ranks.tp and plan.stack.framework != TORCHTITAN:  # see check_mesh
        near = plan.batch.sequence // ranks.tp * ranks.tp
        allowed = f"a multiple of the {ranks.tp} ranks of tp is needed"
        yield Problem("batch.sequence", f"found {plan.batch.sequence}", allowed, f"Did you mean {near}?")


def _colossal(plan: Plan) -> Iterator[Problem]:
    """What of HybridParallelPlugin was not read."""
    if plan.parallel.sp:
        yield Problem("parallel.sp", f"found true with {COLOSSAL}", "layers that spread no sequence can be so far")
    if plan.stack.loss == SPREAD:
        yield Problem("stack.loss", f"found {SPREAD!r} with {COLOSSAL}", "ColossalChat gathers logits: full-fp32")


def tensor_model_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of a model whose tensors cannot be spread over these ranks."""
    tp = degrees(plan).tp
    if tp == 1:
        return
    ops: tuple[Op, ...] = (*model.prologue, *(op for block in model.blocks for op in block.ops), *model.head.ops)
    if any(block.top_k for block in model.blocks):
        yield from _experts(plan, ops)
        if plan.stack.framework != TORCHTITAN:
            return
    if any(isinstance(op.spec, Linear) and (op.spec.conv1d or op.spec.bias) for op in ops):
        yield Problem("parallel.tp", f"found {tp} with biases", "linear layers without can be estimated so far")
    if any(isinstance(op.spec, Linear) and op.spec.weight in model.embeddings for op in ops):
        yield Problem("parallel.tp", f"found {tp} with a tied head", "a head of its own can be estimated so far")
    sizes = {axis for op in ops if isinstance(op.spec, Linear | Embed) for axis in op.spec.weight.dims}
    if plan.stack.framework == COLOSSAL:  # which repeats no heads
        sizes |= {Axis(Dim.KV_HEADS, op.spec.kv_heads) for op in ops if isinstance(op.spec, Attention)}
    for axis in sorted(sizes, key=lambda one: (one.dim, one.size)):
        if axis.dim in BY_TENSOR and axis.size % tp:
            yield Problem("parallel.tp", f"found {tp}", f"it does not divide {axis.size} {axis.dim}")


def _experts(plan: Plan, ops: tuple[Op, ...]) -> Iterator[Problem]:
    """Routed experts run beside tensor parallelism in torchtitan alone, there with the sequence spread."""
    ranks, each, path = degrees(plan), expert_tensor_degree(plan), "parallel.tp"
    found = f"found {ranks.tp} with experts"
    if plan.stack.framework != TORCHTITAN:
        yield Problem(path, f"{found} and {plan.stack.framework}", f"dense models, or {TORCHTITAN}, can be estimated")
        return
    if any(isinstance(op.spec, ClampedExperts) for op in ops):
        yield Problem(path, f"{found} that have biases", "experts without can be estimated so far")
    if not plan.parallel.sp:
        allowed = "experts of ranks that spread the sequence can be estimated so far"
        yield Problem("parallel.sp", f"found false with tp {ranks.tp} and experts", allowed, "Set it to true.")
    widths = {op.spec.down.dims[-1].size for op in ops if isinstance(op.spec, Experts)}
    for width in sorted(widths):
        if width % each:
            yield Problem(path, f"found {ranks.tp}", f"each expert is spread over {each} ranks: a divisor of {width}")
