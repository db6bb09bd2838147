"""What DeepEP takes of the device for the ranks that share a model's experts: no allocator of PyTorch's knows of it.

Source: megatron/core/transformer/moe/fused_a2a.py, get_buffer (0.14 to 0.19); facts/deepep.py.
"""

from __future__ import annotations

from trainledger.base.sources import Basis
from trainledger.facts.deepep import BACKEND, BUFFERS, OPTIONS, Tokens
from trainledger.facts.dtypes import BF16
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.facts.overheads import Interval
from trainledger.plan.mesh import expert_tensor_degree
from trainledger.plan.schema import Plan

DISPATCHER, FLEX = "moe_token_dispatcher_type", "flex"


def expert_buffers(plan: Plan) -> tuple[Interval, ...]:
    """The buffers of one rank as an interval of bytes; nothing where tokens go another way, or where how many ranks
    share the experts has no row. Between nodes the memory is NVSHMEM's, which takes whole pieces of its heap."""
    given, hidden = plan.parallel.options, plan.keys().get("hidden_size")
    backend = str(given.get(OPTIONS[0]) or BACKEND)
    if plan.stack.framework not in FRAMEWORKS or given.get(DISPATCHER) != FLEX or backend != BACKEND:
        return ()
    ranks = plan.parallel.ep * expert_tensor_degree(plan)
    row = next((one for one in BUFFERS.rows if one.ranks == ranks), None)
    if row is None or not isinstance(hidden, int):
        return ()
    near, far = within(row, hidden), between(row, hidden)
    heap = -(-far // BUFFERS.heap) * BUFFERS.heap
    low, most = near + far, near + heap + (BUFFERS.heap if far else 0)
    return (Interval(low, near + heap, most, "B", BUFFERS.source, Basis.COUNTED),)


def within(row: Tokens, hidden: int) -> int:
    """Bytes of the buffers within a node, for hidden states of so many 16-bit elements, and of the workspace."""
    b, nodes = BUFFERS, max(row.ranks // BUFFERS.peers, 1)
    counters = b.counters.each + b.counters.step * nodes
    size = b.channels * min(row.ranks, b.peers) * (counters + row.near * _token(hidden))
    return _aligned(size) + b.workspace


def between(row: Tokens, hidden: int) -> int:
    """Bytes of the buffers between nodes; 0 within one."""
    b, nodes = BUFFERS, row.ranks // BUFFERS.peers
    if nodes <= 1:
        return 0
    kept = max(-(-b.kept // sent) * sent for sent in row.sent)
    token = _token(hidden) + b.token.more
    return _aligned(b.channels * nodes * (b.counters.far + kept * token * b.sides) + b.spare)


def _token(hidden: int) -> int:
    token = BUFFERS.token
    return BF16.bytes_of(hidden) + token.meta + token.chosen + token.scales


def _aligned(size: int) -> int:
    return -(-size // BUFFERS.align) * BUFFERS.align
