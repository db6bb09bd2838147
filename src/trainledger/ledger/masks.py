"""Which mask an attention reads, by how the release of Transformers hands masks of padded rows to the layers."""

from __future__ import annotations

from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.masks import ALWAYS_MASKED, CONTIGUOUS_CALL, WRITTEN_MASK
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Prim
from trainledger.model.program import Attention, Model

WHOLE = "mask"  # of every layer without a window


def writes(frame: Frame) -> bool:
    """Whether the model's forward writes the mask of padded rows out itself."""
    return frame.setting.padded and WRITTEN_MASK.holds(frame.software.family, frame.setting.transformers)


def adds(frame: Frame) -> bool:
    """Whether eager attention adds a mask, padding or none."""
    eager = frame.setting.attention == Kernel.EAGER
    return eager and WRITTEN_MASK.adds(frame.software.family, frame.setting.transformers)


def returns(frame: Frame) -> bool:
    """Whether eager attention hands its weights to the layer."""
    return WRITTEN_MASK.returns(frame.software.family, frame.setting.transformers)


def always(frame: Frame, model: Model) -> bool:
    """Whether the model's forward makes a mask that PyTorch's own call is handed, whatever the batch is."""
    made = ALWAYS_MASKED.holds(model.family, frame.setting.transformers)
    return made or (model.handed.alibi is not None and model.handed.alibi.masks)


def mask_of(frame: Frame, spec: Attention) -> str:
    """The name of the mask that the model's forward makes for this attention."""
    return WHOLE if _layered(frame, spec) else spec.mask_name


def of_layer(frame: Frame, spec: Attention) -> int | None:
    """The mask that this attention reads: the model's, or what the layer writes of it and holds until it ends; None
    where there is none."""
    tape, whole = frame.tape, frame.names.get(WHOLE)
    if whole is not None and _layered(frame, spec):
        own = tape.fresh(tape.dims[whole], tape.dtype[whole], False, "mask in the window")
        frame.names[spec.mask_name] = tape.run(Prim("where", (whole,), (own,), (), (), ()))
    return frame.names.get(spec.mask_name)


def copies(frame: Frame) -> bool:
    """Whether queries, keys and values are copied head by head because rows are padded."""
    return frame.setting.padded and CONTIGUOUS_CALL.holds(frame.software.family, frame.setting.transformers)


def _layered(frame: Frame, spec: Attention) -> bool:
    return bool(spec.window) and writes(frame) and frame.software.family in WRITTEN_MASK.layered
