"""How far the host runs ahead of the device, and what comes back only when the device has caught up."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Ahead:
    """Launches that wait for the device at most, whatever they take; of a layer whose attention goes round a ring,
    forward: launches of each step, and all others. A step sends and receives, attends, and adds to statistics and
    output; the first does not receive, the last does not send."""

    launches: int
    step: int
    rest: int
    source: Source


AHEAD = Ahead(
    1000, 5, 12,
    Source(
        "CUDA: launches beyond some 1,000 block the host; PyTorch records the stream of sends and receives",
        "stackoverflow.com/questions/53970187; torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, pointToPoint "
        "(pytorch issue 132292, #148590); Transformer Engine context_parallel.py, AttnFuncWithCPAndKVP2P.forward",
        "2.9; 2.7",
    ),
)  # fmt: skip
