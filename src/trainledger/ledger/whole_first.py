"""How FSDP2 comes to its parts: of a model that lies on the device whole each weight gives way to this rank's part of
it; of one without storage `to_empty` makes the parts.

Source: torch/distributed/fsdp/_fully_shard/_fsdp_param.py, _init_sharded_param; torch/nn/modules/module.py, to_empty;
_fully_shard/_fully_shard.py, FSDPModule._apply (v2.4 to v2.13).
"""

from __future__ import annotations

from trainledger.facts.code_read import PLACED
from trainledger.ledger.layout import Layout, buffers_of, weights_of
from trainledger.ledger.layout_fsdp2 import Sharded
from trainledger.ledger.updates import Runs, births
from trainledger.lines.line import Account
from trainledger.model.prompts import shared_weights
from trainledger.model.quantised import tensors_of


def built(layout: Layout) -> Runs:
    """How weights and buffers come to be: as the layout has it, or from the whole model where that lies there first."""
    job = layout.job
    if not isinstance(layout, Sharded):
        return layout.building()
    if not job.run.software.placed:
        return [*layout.building(), *_tied(layout)]
    buffers = buffers_of(job)
    own = layout.weights()[: -len(buffers) or None]
    parts = [] if layout.how.offload else [line for line, _ in own]  # shards lie on the host
    whole = [
        (
            job.book.tensor(Account.WEIGHTS, f"{prefix}{one.name}, whole", one.dims, one.dtype, PLACED),
            count * one.copies,
        )
        for prefix, weight, count in weights_of(job.model)
        for one in tensors_of(weight, layout.stored(weight))
    ]
    runs: Runs = [*births(whole), *births(buffers)]
    for at, (line, count) in enumerate(whole):
        runs.append(((*((parts[at] + 1,) if parts else ()), -line - 1), count))
    return [*runs, *births(own)] if layout.how.offload else runs


def _tied(layout: Sharded) -> Runs:
    """Tied weights' parts are made once for each name, before the names are one again."""
    model = layout.job.model
    if layout.how.offload:
        return []
    tied = shared_weights(model)
    every = [weight for _, weight, _ in weights_of(model) for _ in layout.tensors(weight)]
    parts = zip(layout.weights(), every, strict=False)  # buffers follow
    return [((line + 1, -line - 1), 1) for (line, _), weight in parts if weight in tied]
