"""Transformer Engine under Megatron-Core: what a process keeps for it, and what it is handed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.base.sources import Basis
from trainledger.facts.allocator import CUDA
from trainledger.facts.dtypes import BOOL, FP32, UINT8
from trainledger.facts.megatron import BUFFER
from trainledger.facts.phases import TASKS
from trainledger.facts.transformer_engine import DUMMY, GEMM, MASK
from trainledger.facts.transformer_engine_fp8 import HISTORIES, recipe_of
from trainledger.facts.versions import at_least
from trainledger.ledger.mega_choice import MADE, number
from trainledger.ledger.mega_fp8 import DELAYED, bytes_of, copies
from trainledger.ledger.mega_routing import own_dummies
from trainledger.ledger.mega_run import Chunk
from trainledger.ledger.opening import Job
from trainledger.lines.line import Account, Line
from trainledger.lines.moments import BACKWARD, FORWARD
from trainledger.model.operations_megatron import Parallel
from trainledger.model.operations_megatron_moe import GroupedExperts
from trainledger.model.program import Block, Op
from trainledger.plan.schema import Plan


def lasting(job: Job, shared: int) -> list[tuple[int, int]]:
    """Lines of what is made once and stays: the products' workspaces, and the buffer of `shared` elements into which
    Megatron's own layers gather."""
    mega, setting = job.run.software.mega, job.run.setting
    assert mega is not None
    assert mega.engine is not None
    found = workspaces(job, mega.engine.release, mega.routing is not None and mega.routing.grouped)
    if shared:
        flat = (Axis(Dim.ELEMENTS, shared),)
        found.append((job.book.tensor(Account.BUFFERS, "buffer that layers share", flat, setting.weights, BUFFER), 1))
    return found


def workspaces(job: Job, release: str, grouped: bool) -> list[tuple[int, int]]:
    """Lines of Transformer Engine's workspaces; `grouped`: of products of several matrices, too."""
    wide = number(job.run.setting.architecture) >= GEMM.wide
    more = GEMM.more if at_least(release, GEMM.since) else 0
    size = CUDA.rounded(GEMM.large + more if wide else GEMM.small)
    dims = (Axis(Dim.ELEMENTS, size),)
    names = ["Transformer Engine's cuBLAS workspace"]
    names += [f"Transformer Engine's cuBLAS workspace of stream {at}" for at in range(GEMM.streams) if grouped]
    book = job.book
    return [
        (book.add(Line(Account.WORKSPACE, name, dims, UINT8, size, Basis.COUNTED, GEMM.source)), 1) for name in names
    ]


def dummies(job: Job, chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Lines of the gradients that stand in for those added to their buffer in place: one of each shape that the rank's
    chunks have, made in the first backward and kept."""
    mega = job.run.software.mega
    if mega is None or not mega.added:
        return []
    layers = {layer for chunk in chunks for layer in chunk.layers}
    groups: list[Sequence[Op]] = [block.ops for block in job.model.blocks if layers & set(block.layers)]
    groups += [block.ops for chunk in chunks if chunk.further for block in job.model.further]
    groups += [job.model.head.ops for chunk in chunks if chunk.last and not mega.day.anew]
    shapes: dict[tuple[int, ...], Dims] = {}
    fresh = mega.engine is not None and own_dummies(mega.engine.release)
    for dims in _weights(op for ops in groups for op in ops if not (fresh and isinstance(op.spec, GroupedExperts))):
        shapes.setdefault(tuple(axis.size for axis in dims), dims)
    dtype = job.run.setting.weights
    return [
        (job.book.tensor(Account.BACKWARD, f"unused gradient of weights of {shape}", dims, dtype, DUMMY), 1)
        for shape, dims in shapes.items()
    ]


def _weights(ops: Iterable[Op]) -> Iterable[Dims]:
    for op in ops:
        if isinstance(op.spec, Parallel):
            yield op.spec.weight.dims
        elif isinstance(op.spec, GroupedExperts):
            yield op.spec.up.dims[1:]
            yield op.spec.down.dims[1:]


def weight_copies(job: Job, chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Lines of the 8-bit copies of weights that layers make with a step's first micro-batch and keep; of weights that
    are in 8 bits themselves, of their columns alone."""
    mega = job.run.software.mega
    if mega is None or mega.engine is None or mega.engine.quant is None:
        return []
    quant, made = mega.engine.quant, Counter[int]()
    if quant.held and not quant.apart:
        return []
    for block, count in _blocks(job, chunks, quant.wide):
        for name, dims, each in _products(block.ops):
            for what, shape, dtype in bytes_of(list(copies(quant, dims, not quant.held, True, True))):
                line = job.book.tensor(
                    Account.BUFFERS, f"{block.name}.*.{name} {what}", shape, dtype, quant.recipe.source
                )
                made[line] += count * each
    return [(line, count) for line, count in made.items() if count]


def histories(plan: Plan, job: Job, chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Lines of the scales and largest values that 8-bit layers keep of what they quantise, under delayed scaling."""
    mega, row = job.run.software.mega, HISTORIES
    if mega is None or mega.engine is None or mega.engine.quant is None:
        return []
    quant, made = mega.engine.quant, Counter[int]()
    if quant.recipe != recipe_of(DELAYED):
        return []
    length = int(plan.stack.options.get(row.option) or row.length)
    grouped = mega.routing is not None and mega.routing.grouped
    for block, count in _blocks(job, chunks, quant.wide):
        for products, each in _layers(block.ops, grouped):
            for way, tensors in ((FORWARD, row.forward), (BACKWARD, row.backward)):
                for name, rows in (("scales", 1), ("largest values", length)):
                    dims = (Axis(Dim.ELEMENTS, rows * tensors * products),)
                    shown = f"{name} of a layer's {way} tensors"
                    made[job.book.tensor(Account.BUFFERS, shown, dims, FP32, row.source)] += count * each
    return [(line, count) for line, count in made.items() if count]


def _blocks(job: Job, chunks: Sequence[Chunk], wide: frozenset[int]) -> list[tuple[Block, int]]:
    """The rank's blocks, and of how many layers each is, without those that stay in 16 bits."""
    found = [
        (block, sum(len({*block.layers} & {*chunk.layers} - wide) for chunk in chunks)) for block in job.model.blocks
    ]
    return found + [(block, sum(chunk.further for chunk in chunks)) for block in job.model.further]


def _layers(ops: Iterable[Op], grouped: bool) -> Iterator[tuple[int, int]]:
    """Of Transformer Engine's layers: how many products each runs, and how many such layers there are."""
    for op in ops:
        if isinstance(op.spec, Parallel):
            yield 1, 1
        elif isinstance(op.spec, GroupedExperts):
            count = op.spec.up.dims[0].size
            for _ in (op.spec.up, op.spec.down):
                yield (count, 1) if grouped else (1, count)


def _products(ops: Iterable[Op]) -> Iterator[tuple[str, Dims, int]]:
    """Name, dims and number of the matrices that Transformer Engine's layers read."""
    for op in ops:
        if isinstance(op.spec, Parallel):
            yield op.spec.weight.name, op.spec.weight.dims, 1
        elif isinstance(op.spec, GroupedExperts):
            for stack in (op.spec.up, op.spec.down):
                yield stack.name, stack.dims[1:], stack.dims[0].size


def gathered(job: Job, chunks: Sequence[Chunk]) -> int:
    """Elements of the shared buffer into which layers with experts gather all tokens of their ranks; 0: they do not."""
    mega, setting = job.run.software.mega, job.run.setting
    if mega is None or mega.routing is None or not mega.routing.gathers:
        return 0
    group, layers = mega.parts.ep * mega.parts.etp, {layer for chunk in chunks for layer in chunk.layers}
    if group == 1 or not any(block.top_k and layers & set(block.layers) for block in job.model.blocks):
        return 0
    return setting.batch * setting.sequence // mega.ranks * group * job.model.hidden.size


def mask_line(plan: Plan, job: Job) -> int | None:
    """The line of the causal mask that comes with each batch, which Transformer Engine does not read; None where there
    is none. Unless the plan says so it is taken to be there with Transformer Engine's layers, but not where the
    sequence is spread over ranks: whole on each of them, it would undo what the spreading saves."""
    made = plan.stack.options.get(MADE)
    if made is None and plan.task in TASKS:  # the batch's own mask is of tokens
        return None
    if made is None:
        mega = job.run.software.mega
        made = mega is not None and mega.engine is not None and plan.parallel.cp == 1
    if not made:
        return None
    length = Axis(Dim.SEQUENCE, plan.batch.sequence)
    dims = (Axis(Dim.BATCH, plan.batch.micro_batch), length, Axis(Dim.KEY_SEQUENCE, length.size))
    return job.book.tensor(Account.INPUTS, "causal mask of the batch", dims, BOOL, MASK)
