"""What is made before the blocks besides their input: numbers of positions, rotary tables and masks."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, COMPLEX64, FP32, INT64, DType
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Prim, Tape
from trainledger.model.operations import Embed
from trainledger.model.program import Model, Rotary

TURNS = "turns"  # the table of complex numbers

CHUNKED = "mask_chunked"
PARTIAL = ("mask_sliding", CHUNKED)
POSITIONS = "position_ids"
TABLES = frozenset({"cos", "sin"})
ALIBI = "alibi"  # biases of each head by distance
EVERYWHERE = TABLES | {POSITIONS, ALIBI}  # which a model hands to every layer, whether or not it reads them
TYPES = "token_type_ids"


def position_ids(frame: Frame, model: Model) -> None:
    """Numbers of positions, of one sequence for all or, where they are counted past padding, of each; a model with a
    buffer of them reads it. Binds `position_ids`, the types of tokens where a table of these is read, gathered by
    position, and what OPT counts by when the batch has no mask.

    Source: transformers/models/llama/modeling_llama.py, LlamaModel.forward; opt, OPTDecoder.forward; bert,
    BertEmbeddings.forward; roberta, RobertaEmbeddings.forward (5.24.0).
    """
    tape, setting = frame.tape, frame.setting
    reads = {op.spec.ids: op.spec for op in model.prologue if isinstance(op.spec, Embed)}
    read = reads.get(POSITIONS)
    each = read is not None and read.per_batch
    first = Axis(Dim.BATCH, setting.batch) if each else Axis(Dim.ONE, 1)
    tokens: Dims = (first, Axis(Dim.SEQUENCE, setting.sequence))
    if read is not None and read.offset and not setting.masked:
        frame.names["position mask"] = _made(tape, tokens, FP32, "position mask")
    if not each and any(one.name.endswith(POSITIONS) for one in model.buffers):
        frame.names[POSITIONS] = tape.outside(tokens, INT64, False)
    else:
        frame.names[POSITIONS] = _made(tape, tokens, INT64, "position ids")
    if TYPES in reads:
        frame.names[TYPES] = _made(tape, tokens, INT64, "token type ids")


def _made(tape: Tape, dims: Dims, dtype: DType, name: str) -> int:
    tape.scope = name
    return tape.run(Prim("arange", (), (tape.fresh(dims, dtype, False),), (), (), ()))


def rotary_tables(frame: Frame, model: Model, dtype: DType) -> None:
    """Cosines and sines of every position, made in fp32 and, by most models, cast: binds `cos` and `sin` (and other
    sets), or `turns`.

    Source: transformers/models/llama/modeling_llama.py, LlamaRotaryEmbedding.forward; Olmo2RotaryEmbedding,
    DeepseekV2RotaryEmbedding (5.24.0).
    """
    if model.rotary is None:
        return
    tape = frame.tape
    for name in model.rotary.sets:
        full = table_dims(model.rotary, frame.setting.sequence, frame.setting.batch, name)
        half = (*full[:-1], Axis(Dim.ROPE_DIM, full[-1].size // len(("cos", "sin"))))
        if model.rotary.compound:
            _compound(frame, half)
            return
        tape.scope = "rotary_emb"
        if model.rotary.looked:
            _looked(frame, full, FP32 if model.rotary.high else dtype)
            return
        freqs = tape.run(Prim("mul", (), (tape.fresh(half, FP32, False, "angles"),), (), (), ()))
        both = freqs if model.rotary.half else aten.cat(tape, [freqs, freqs], full, "angles twice")
        waves = []
        for wave in ("cos", "sin"):
            raw = aten.unary(tape, wave, both)
            waves.append(aten.scale(tape, raw, f"{wave} scaled"))
        for wave, value in zip(("cos", "sin"), waves, strict=True):
            tape.scope = f"rotary_emb.{wave}{name}"
            frame.names[f"{wave}{name}"] = aten.to(tape, value, FP32 if model.rotary.high else dtype)
        tape.end([freqs, both, *waves])


def table_dims(rotary: Rotary, sequence: int, batch: int, name: str = "") -> Dims:
    """Dims of a set's rotary tables: one head, and but for some models one batch, since it is broadcast over both."""
    single = Axis(Dim.ONE, 1)
    first = Axis(Dim.BATCH, batch) if rotary.each else single
    return (first, Axis(Dim.SEQUENCE, sequence), single, Axis(Dim.ROPE_DIM, rotary.width(name)))


def _looked(frame: Frame, dims: Dims, dtype: DType) -> None:
    """Every position's sines and cosines in one table, looked up in fp32: binds it as `cos`.

    Source: transformers/models/{gptj,codegen}/modeling_*.py, *RotaryEmbedding.forward (5.24.0).
    """
    tape = frame.tape
    rows = tape.run(Prim("index", (), (tape.fresh(dims, FP32, False, "sines and cosines"),), (), (), ()))
    frame.names["cos"] = aten.to(tape, rows, dtype)
    tape.end([rows])


def _compound(frame: Frame, half: Dims) -> None:
    """Every position's turns as complex numbers of unit length."""
    tape = frame.tape
    tape.scope = "rotary_emb"
    freqs = tape.run(Prim("mul", (), (tape.fresh(half, FP32, False, "angles"),), (), (), ()))
    ones = tape.run(Prim("ones_like", (), (tape.fresh(half, FP32, False, "lengths"),), (), (), ()))
    turns = tape.run(Prim("polar", (ones, freqs), (tape.fresh(half, COMPLEX64, False, "turns"),), (), (), ()))
    frame.names[TURNS] = aten.scale(tape, turns, "turns scaled")
    tape.end([freqs, turns])


def causal_mask(frame: Frame, dtype: DType, name: str, boolean: bool, before: int = 0) -> None:
    """A mask of every query and key: bool for PyTorch's own call, additive in `dtype` for eager attention. `before`:
    keys of tokens that stand before the sequence.

    A window and the causal rule each make a square of bools before they are joined; chunks make one for each sequence,
    since padding may shift them; a mask of the batch's tokens then makes one square a sequence, and without one the
    squares of the batch are views of the same.
    Source: transformers/masking_utils.py, sdpa_mask, and_masks and eager_mask (5.24.0).
    """
    tape, setting = frame.tape, frame.setting
    keys = Axis(Dim.KEY_SEQUENCE, setting.sequence + before)
    one: Dims = (Axis(Dim.ONE, 1), Axis(Dim.ONE, 1), Axis(Dim.SEQUENCE, setting.sequence), keys)
    each: Dims = (Axis(Dim.BATCH, setting.batch), *one[1:])
    tape.scope = "attention mask"
    first = each if name == CHUNKED else one
    allowed = _square(frame, first, (), name)
    if name in PARTIAL:
        allowed = _square(frame, first, (allowed,), "in the window")
        causal = _square(frame, one, (), "causal")
        allowed = _square(frame, first, (allowed, causal), "causal, in the window")
    if setting.masked:
        allowed = _square(frame, first, (allowed,), "allowed by position")
        allowed = _square(frame, each, (allowed,), "allowed")
    elif setting.packed:
        allowed = _square(frame, first, (allowed,), "allowed by position")
        allowed = _square(frame, each, (allowed, _square(frame, each, (), "in the same row")), "allowed")
    else:
        allowed = aten.view(tape, allowed, each)
    frame.names[name] = allowed if boolean else written_out(frame, allowed, dtype)


def padding_mask(frame: Frame, dtype: DType, name: str, boolean: bool, shared: bool) -> None:
    """A mask of every query and key of a model that sees what comes later: what is not padding is allowed. `shared`: of
    every key, for all queries.

    Source: transformers/masking_utils.py, create_bidirectional_mask (5.24.0); transformers/modeling_utils.py,
    get_extended_attention_mask (4.57.3).
    """
    setting, single = frame.setting, Axis(Dim.ONE, 1)
    rows: Dims = (single, single, single if shared else Axis(Dim.SEQUENCE, setting.sequence), single)
    every: Dims = (Axis(Dim.BATCH, setting.batch), single, rows[2], Axis(Dim.KEY_SEQUENCE, setting.sequence))
    frame.tape.scope = "attention mask"
    allowed = _square(frame, every, (_square(frame, rows, (), name),), "allowed")
    frame.names[name] = allowed if boolean else written_out(frame, allowed, dtype)


def window_mask(frame: Frame, dtype: DType, name: str, boolean: bool) -> None:
    """A mask of every query and key of a model that sees what comes later, within a distance: differences of positions
    are numbers, and their sizes too.

    Source: transformers/masking_utils.py, sliding_window_bidirectional_overlay (5.24.0).
    """
    tape, setting, one = frame.tape, frame.setting, Axis(Dim.ONE, 1)
    square: Dims = (one, one, Axis(Dim.SEQUENCE, setting.sequence), Axis(Dim.KEY_SEQUENCE, setting.sequence))
    each: Dims = (Axis(Dim.BATCH, setting.batch), *square[1:])
    tape.scope = "attention mask"
    apart = tape.run(Prim("sub", (), (tape.fresh(square, INT64, False, "differences"),), (), (), ()))
    far = tape.run(Prim("abs", (apart,), (tape.fresh(square, INT64, False, "distances"),), (), (), ()))
    allowed = _square(frame, square, (_square(frame, square, (far,), name),), "in the window")
    allowed = _square(frame, each, (allowed,), "allowed") if setting.padded else aten.view(tape, allowed, each)
    frame.names[name] = allowed if boolean else written_out(frame, allowed, dtype)


def written_out(frame: Frame, mask: int, dtype: DType) -> int:
    """A mask of bools written out as what is added to scores."""
    tape = frame.tape
    out = tape.fresh(tape.dims[mask], dtype, False, "additive")
    return tape.run(Prim("where", (mask,), (out,), (), (), ()))


def _square(frame: Frame, dims: Dims, ins: tuple[int, ...], name: str) -> int:
    """A bool for every query and key, compared or joined from others."""
    tape = frame.tape
    return tape.run(Prim("compare", ins, (tape.fresh(dims, BOOL, False, name),), (), (), ()))
