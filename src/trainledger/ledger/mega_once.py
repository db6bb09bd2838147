"""What a Megatron-Core run makes in its first forward and keeps.

Source: megatron/core/tensor_parallel/{layers,mappings}.py; transformer/dot_product_attention.py (0.19.2).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.megatron import BUFFER, LAYERS, QKV, ROTARY
from trainledger.ledger.mega_attention import angles
from trainledger.ledger.mega_engine import gathered, histories, lasting, weight_copies, workspaces
from trainledger.ledger.mega_passes import mega_of
from trainledger.ledger.mega_run import Rank
from trainledger.ledger.opening import Job
from trainledger.lines.line import Account
from trainledger.model.operations_megatron import Queries, Unfolded

SHARED, TABLES = "buffer that layers share", "rotary angles"
BATCH = ("token ids", "labels", "position ids")  # int64; beside them the mask of the loss, in fp32


def once(rank: Rank) -> list[tuple[int, int]]:
    """What is made in the first forward and stays: the batch, rotary angles, the causal mask, the buffer that layers
    gather into."""
    job, setting = rank.job, rank.job.run.setting
    mega, book = mega_of(job), job.book
    frame = job.frame()
    tokens = frame.dims(())
    found = [(book.tensor(Account.INPUTS, name, tokens, INT64, LAYERS), 1) for name in BATCH]
    found.append((book.tensor(Account.INPUTS, "mask of the loss", tokens, FP32, LAYERS), 1))
    if job.model.rotary is not None:
        dims = angles(frame, job.model.rotary.dim)
        found.append((book.tensor(Account.BUFFERS, TABLES, dims, FP32, ROTARY), 1))
    shared = gathered(job, rank.chunks)
    if mega.ranks > 1 and (mega.engine is None or any(chunk.last for chunk in rank.chunks)):
        shared = max(shared, setting.batch * setting.sequence * job.model.hidden.size)
    if mega.engine is not None:
        kept = (*weight_copies(job, rank.chunks), *histories(rank.plan, job, rank.chunks))
        return [*found, *lasting(job, shared), *kept]
    if setting.attention == "eager":
        heads = _heads(job)
        shared = max(shared, setting.batch * heads * setting.sequence * setting.sequence)
    if mega.routing is not None and mega.routing.engine:
        found += workspaces(job, mega.routing.engine, False)
    if shared:
        flat = (Axis(Dim.ELEMENTS, shared),)
        found.append((book.tensor(Account.BUFFERS, SHARED, flat, setting.weights, BUFFER), 1))
    return found


def _heads(job: Job) -> int:
    """Query heads on this rank."""
    latent = next((op for block in job.model.blocks for op in block.ops if isinstance(op.spec, Unfolded)), None)
    if latent is not None:
        return latent.dims[0].size
    each = next(op for block in job.model.blocks for op in block.ops if isinstance(op.spec, Queries)).dims
    rows = next(op for block in job.model.blocks for op in block.ops if op.outs == ("qkv",)).dims[0].size
    return rows // each[1].size - QKV.others * each[0].size
