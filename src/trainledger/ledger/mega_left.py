"""The graph that a recomputed layer with experts leaves behind.

The token dispatcher keeps the router's probabilities as an attribute until its next forward. Of a layer that ran again
they hold the graph, down to the leaf that the checkpoint made of the layer's input, and the leaf holds its gradient.
Source: megatron/core/transformer/moe/token_dispatcher.py, dispatch_preprocess; tensor_parallel/random.py,
CheckpointFunction (0.19.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainledger.ledger.blocks import Walked
from trainledger.ledger.visits import Visit
from trainledger.model.operations_megatron_moe import Dispatched
from trainledger.model.program import Block

DISPATCHER = "mlp.token_dispatcher"


def routes(block: Block) -> bool:
    """Whether a layer sends tokens to experts."""
    return any(isinstance(op.spec, Dispatched) for op in block.ops)


def released(walked: Walked, kept: tuple[int, int]) -> Walked:
    """The piece where its dispatcher lets go of a graph that was left: of the lines `kept`."""
    gone = tuple(-line - 1 for line in kept)
    seen = walked.visits
    ahead, behind = _last(seen.forward, False), _last(seen.backward, True)
    forward = (*walked.forward[:ahead], *gone, *walked.forward[ahead:])
    return replace(walked, forward=forward, backward=(*walked.backward[:behind], *gone, *walked.backward[behind:]))


def _last(visits: Sequence[Visit], again: bool) -> int:
    """After how many events the last dispatcher begins."""
    return next(
        one.at for one in reversed(visits) if one.call.name == DISPATCHER and one.again is again and not one.done
    )


def shifted(walked: Walked, by: int) -> Walked:
    """The piece whose backward has `by` more events ahead."""
    return replace(walked, visits=walked.visits.later(by))
