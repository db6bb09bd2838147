"""What ZeRO-3 spreads of a weight: the weight itself, or the codes of a quantised one, in their own dtype.

Scales and the like are no parameters, nor is anything of a weight that is kept in buffers: every rank has them whole.
Source: deepspeed/runtime/zero/partition_parameters.py, _convert_to_deepspeed_param (0.9.5 to 0.19.8); bitsandbytes/nn/
modules.py (Params4bit, QuantState).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trainledger.base.dims import Dims, elements
from trainledger.facts.dtypes import UINT8, DType
from trainledger.ledger.registered import Slot
from trainledger.model.quantised import parameter_of


def spread(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """The parameters that are spread, each with its elements: of a quantised weight as many as it has codes."""
    found = (one if one.weight.packed is None else _coded(one) for one in slots)
    return tuple(one for one in found if one.size)


def _coded(slot: Slot) -> Slot:
    return replace(slot, size=elements(parameter_of(slot.weight, UINT8)[0]))


def dims_of(slot: Slot) -> Dims:
    """The dims of what is gathered of a parameter."""
    return slot.weight.dims if slot.weight.packed is None else parameter_of(slot.weight, UINT8)[0]


def dtype_of(slot: Slot, dtype: DType) -> DType:
    """The dtype in which a parameter is spread and gathered, where others are in `dtype`."""
    return parameter_of(slot.weight, dtype)[1]
