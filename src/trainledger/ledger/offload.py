"""What a rank keeps in the host's memory where FSDP offloads weights: shards, reduced gradients, optimizer states.

Shards and gradients are page-locked; states are what the optimizer makes of parameters that lie on the host.
Source: torch/distributed/fsdp/_fully_shard/{_fsdp_param,_fsdp_collectives}.py (CPUOffloadPolicy), _flat_param.py and
_runtime_utils.py (CPUOffload) (v2.4 to v2.13).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainledger.facts.dtypes import DType
from trainledger.facts.optimizer_bytes import state_bytes
from trainledger.facts.optimizer_kinds import Kind
from trainledger.facts.sharding import OFFLOAD
from trainledger.ledger.host import Lines, host_line
from trainledger.ledger.updates import Parameter
from trainledger.lines.line import Account, Line

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates

Part = tuple[str, int, DType, int]  # a tensor of the host: its name, elements, dtype, and how many there are


def host_lines(shards: Sequence[Part], gradients: Sequence[Part], stepped: Sequence[Parameter], by: Updates) -> Lines:
    """Lines of these page-locked shards and gradients, and of the states of what the optimizer steps."""
    kept = ((Account.WEIGHTS, shards), (Account.GRADIENTS, gradients))
    pinned = [
        (host_line(account, name, size, dtype, True), count)
        for account, parts in kept
        for name, size, dtype, count in parts
    ]
    return tuple((replace(line, source=OFFLOAD.source), count) for line, count in (*pinned, *_states(stepped, by)))


def _states(stepped: Sequence[Parameter], by: Updates) -> Iterator[tuple[Line, int]]:
    for one in stepped:
        for state in state_bytes(by.row, one.weight.shape, one.dtype, by.options(one.weight)):
            if state.kind is not Kind.STEP:
                name = f"{state.kind.value} {state.part.value} of {one.name}"
                yield host_line(Account.OPTIMIZER, name, state.elements, state.dtype), one.count
