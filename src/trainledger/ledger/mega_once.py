"""What a Megatron-Core run makes in its first forward and keeps.

Source: megatron/core/tensor_parallel/{layers,mappings}.py; transformer/dot_product_attention.py (0.19.2).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.megatron import BUFFER, LAYERS, QKV, ROTARY, ROTARY_KEPT
from trainledger.ledger.mega_attention import SCORES, angles
from trainledger.ledger.mega_engine import gathered, histories, lasting, weight_copies, workspaces
from trainledger.ledger.mega_passes import mega_of
from trainledger.ledger.mega_run import Chunk, Rank
from trainledger.ledger.opening import Job
from trainledger.ledger.woven import made_before
from trainledger.lines.line import Account
from trainledger.lines.stream import Segment
from trainledger.model.operations_megatron import Paired, Queries, Unfolded
from trainledger.model.program import Op

FURTHER = "eh_proj: output"  # the first product of a layer for further tokens
SHARED, TABLES = "buffer that layers share", "rotary angles"
BATCH = ("token ids", "labels", "position ids")  # int64; beside them the mask of the loss, in fp32


def once(rank: Rank) -> list[tuple[int, int]]:
    """What is made in the first forward and stays: the batch, rotary angles of each chunk, the causal mask, the buffer
    that layers gather into."""
    job = rank.job
    mega, book = mega_of(job), job.book
    frame = job.frame()
    tokens = frame.dims(())
    found = [(book.tensor(Account.INPUTS, name, tokens, INT64, LAYERS), 1) for name in BATCH]
    found.append((book.tensor(Account.INPUTS, "mask of the loss", tokens, FP32, LAYERS), 1))
    if job.model.rotary is not None:
        dims = angles(frame, job.model.rotary.dim)
        made = sum(tables(job, chunk) for chunk in rank.chunks)
        found.append((book.tensor(Account.BUFFERS, TABLES, dims, FP32, ROTARY), min(made, ROTARY_KEPT)))
    shared = _gathered(rank)
    if mega.engine is not None:
        kept = (*weight_copies(job, rank.chunks), *histories(rank.plan, job, rank.chunks))
        return [*found, *lasting(job, shared), *kept]
    shared = max(shared, _scores(job), _further(rank))
    if mega.routing is not None and mega.routing.engine:
        found += workspaces(job, mega.routing.engine, False)
    return [*found, *((line, 1) for line in _shared(job, shared))]


def tables(job: Job, chunk: Chunk) -> int:
    """How many tables of rotary angles a chunk makes: one, or one for each layer of latent attention."""
    return len(chunk.layers) + chunk.further if _latent(job) else 1


def grown(rank: Rank) -> tuple[list[int], list[tuple[int, str]]]:
    """Lines of the buffer that Megatron's own layers gather into, as the first of them makes it, and of larger ones
    that are put in its place later, each before the first tensor of that name."""
    job, mega = rank.job, mega_of(rank.job)
    if mega.engine is not None:
        return [], []
    size = _gathered(rank) if mega.ranks > 1 else 0
    first, larger = _shared(job, size), list[tuple[int, str]]()
    for more, name in ((_scores(job), SCORES), (_further(rank), FURTHER)):
        if more > size:
            size = more
            larger += ((line, name) for line in _shared(job, size))
    return first, larger


def regrown(
    job: Job, segments: list[Segment], larger: list[tuple[int, str]], gone: list[int]
) -> tuple[list[Segment], list[tuple[int, str]], list[int]]:
    """The segments with each larger buffer of `grown` put in the place of the one before (`gone`); which are still to
    come, and which is there now."""
    while larger:
        line, name = larger[0]
        places = {at for at, one in enumerate(job.book.lines) if one.name.endswith(name)}
        found = made_before(segments, places, (line + 1, *(-one - 1 for one in gone)))
        if found is segments:
            break
        segments, gone, larger = found, [line], larger[1:]
    return segments, larger, gone


def _shared(job: Job, size: int) -> list[int]:
    flat = (Axis(Dim.ELEMENTS, size),)
    return [job.book.tensor(Account.BUFFERS, SHARED, flat, job.run.setting.weights, BUFFER)] if size else []


def _gathered(rank: Rank) -> int:
    """Elements that are gathered into the buffer: what experts are given, what comes before a product."""
    job, mega = rank.job, mega_of(rank.job)
    found = gathered(job, rank.chunks)
    if mega.ranks > 1 and (mega.engine is None or any(chunk.last for chunk in rank.chunks)):
        found = max(found, job.run.setting.batch * job.run.setting.sequence * job.model.hidden.size)
    return found


def _further(rank: Rank) -> int:
    """Elements that layers for further tokens gather: hidden states and embedded words side by side."""
    job, mega = rank.job, mega_of(rank.job)
    if mega.ranks == 1 or not any(chunk.further for chunk in rank.chunks):
        return 0
    both = next(op.dims for op in job.model.further[0].ops if isinstance(op.spec, Paired))
    return job.run.setting.batch * job.run.setting.sequence * elements(both)


def _scores(job: Job) -> int:
    """Elements of the scores that lie in the buffer; 0: none do."""
    setting, mega = job.run.setting, mega_of(job)
    if mega.engine is not None or setting.attention != Kernel.EAGER:
        return 0
    return setting.batch * _heads(job) * setting.sequence * setting.sequence


def _heads(job: Job) -> int:
    """Query heads on this rank."""
    latent = _latent(job)
    if latent is not None:
        return latent.dims[0].size
    each = next(op for block in job.model.blocks for op in block.ops if isinstance(op.spec, Queries)).dims
    rows = next(op for block in job.model.blocks for op in block.ops if op.outs == ("qkv",)).dims[0].size
    return rows // each[1].size - QKV.others * each[0].size


def _latent(job: Job) -> Op | None:
    """Where queries and keys are made of latents."""
    return next((op for block in job.model.blocks for op in block.ops if isinstance(op.spec, Unfolded)), None)
