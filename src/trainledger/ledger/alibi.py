"""Biases that grow with a key's place (ALiBi), made once a forward, and masks that hold them.

Sources: transformers (5.24.0) models/falcon/modeling_falcon.py, build_alibi_tensor, FalconModel.forward;
models/bloom/modeling_bloom.py, BloomModel.forward; models/mpt/modeling_mpt.py, MptModel.forward.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BF16, BOOL, FP32, INT64, DType
from trainledger.ledger import aten
from trainledger.ledger.edges import ALIBI, written_out
from trainledger.ledger.frame import Frame
from trainledger.ledger.masks import WHOLE
from trainledger.ledger.tape import Prim
from trainledger.model.program import Alibi

TOKENS = "every token"


def bind(frame: Frame, spec: Alibi, dtype: DType) -> None:
    """Biases of every head and key, of each sequence in `dtype` or of all in fp32: binds `alibi`, and a mask of every
    token where the code makes one."""
    tape, setting = frame.tape, frame.setting
    tape.scope = ALIBI
    one, heads = Axis(Dim.ONE, 1), Axis(Dim.HEADS, spec.heads)
    if spec.keys:
        every: Dims = (heads, one, Axis(Dim.KEY_SEQUENCE, spec.keys))
        frame.names[ALIBI] = tape.run(Prim("mul", (), (tape.fresh(every, FP32, False, "biases"),), (), (), ()))
        return
    batch, keys = Axis(Dim.BATCH, setting.batch), Axis(Dim.KEY_SEQUENCE, setting.sequence)
    if spec.masks and not setting.masked:
        ones = tape.fresh((batch, keys), INT64, False, TOKENS)
        frame.names[TOKENS] = tape.run(Prim("ones", (), (ones,), (), (), ()))
    if not (spec.masks or setting.masked):
        slopes = tape.fresh((heads,), FP32, False, "slopes")
        frame.names["slopes"] = tape.run(Prim("pow", (), (slopes,), (), (), ()))
    places = tape.run(Prim("cumsum", (), (tape.fresh((batch, keys), INT64, False, "places"),), (), (), ()))
    dims: Dims = (batch, heads, one, keys)
    low = tape.run(
        Prim("mul", (places,), (tape.fresh(dims, BF16 if spec.masks else FP32, False, "biases"),), (), (), ())
    )
    frame.names[ALIBI] = aten.to(tape, low, dtype)
    tape.end([places, low])


def into_mask(frame: Frame, spec: Alibi, dtype: DType) -> None:
    """The mask, if there is one, becomes one for every head that holds the scaled biases where keys may be seen; or
    one of bools."""
    tape = frame.tape
    mask = frame.names.get(WHOLE)
    if mask is None or not (spec.masks or spec.filled):
        return
    tape.scope = "attention mask"
    if spec.filled:
        cast = tape.fresh(tape.dims[mask], BOOL, False, "hidden")
        frame.names[WHOLE] = tape.run(Prim("to", (mask,), (cast,), (), (), ()))
        tape.end([mask])
        return
    added = written_out(frame, mask, dtype) if tape.dtype[mask] == BOOL else mask
    scaled = aten.scale(tape, frame.names[ALIBI], "scaled biases")
    below = tape.run(Prim("compare", (added,), (tape.fresh(tape.dims[added], BOOL, False, "hidden"),), (), (), ()))
    dims = aten.broadcast(tape.dims[scaled], tape.dims[below])
    out = tape.fresh(dims, dtype, False, "biases and mask")
    frame.names[WHOLE] = tape.run(Prim("masked_fill", (scaled, below), (out,), (), (), ()))
    tape.end([mask, added])
