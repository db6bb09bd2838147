"""Megatron-Core's layers that each predict one more token: two norms, a projection of both inputs, a layer, a norm.

The embedding and the output layer are the model's own. Names are Megatron's. Source: megatron/core/transformer/
multi_token_prediction.py, MultiTokenPredictionLayer (0.12 to 0.19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainledger.base.dims import Dim
from trainledger.model.operations_megatron import Along, Paired, Parallel, Regathered
from trainledger.model.parts import axis
from trainledger.model.program import Block, Op, Weight

if TYPE_CHECKING:
    from trainledger.model.families.megatron_gpt import Shape

PREFIX = "mtp.layers"
EMBEDDED = "e"  # the rolled tokens' rows of the embedding


def further(shape: Shape, count: int, layer: tuple[Op, ...], top_k: int) -> Block:
    """The `count` layers; `layer`: operations of the transformer layer in each, as of the decoder's last one. Reads
    hidden states `h` and the embedding's rows `e`."""
    hidden = shape.hidden
    both = axis(Dim.HIDDEN, hidden[0].size + hidden[0].size)
    part = axis(Dim.HIDDEN_PART, hidden[0].size)
    weight = Weight("eh_proj.weight", (*part, *both))
    ops = (
        shape.norm("enorm", EMBEDDED, EMBEDDED),
        shape.norm("hnorm", "h", "n"),
        Op("mtp.cat", Paired(), (EMBEDDED, "n"), ("x",), both, ("n",)),
        Op("eh_proj", Parallel(Along.COLUMN, weight, later=False), ("x",), ("x",), part),
        Op("mtp.gather", Regathered(), ("x",), ("h",), hidden, ("x", EMBEDDED)),
        *layer,
        shape.norm("final_layernorm", "h", "h"),
    )
    own = tuple(weight for op in ops for weight in _weights(op))
    return Block(PREFIX, ops, tuple(dict.fromkeys(own)), tuple(range(count)), top_k)


def _weights(op: Op) -> tuple[Weight, ...]:
    found = (getattr(op.spec, name, None) for name in ("weight", "bias", "up", "down"))
    return (*(one for one in found if isinstance(one, Weight)), *getattr(op.spec, "biases", ()))
