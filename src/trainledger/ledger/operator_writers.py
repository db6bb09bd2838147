"""Operators of published benchmarks, each on a tape of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import BOOL, DTYPES, FP32, INT64, DType
from trainledger.facts.kernel_sets import MULTIPROCESSORS, UNKNOWN_DEVICE
from trainledger.ledger import aten, fused_head, rotary, rules_liger
from trainledger.ledger.cross_entropy import torch_cross_entropy
from trainledger.ledger.frame import Frame, Setting
from trainledger.ledger.nn import linear
from trainledger.ledger.rules import lower
from trainledger.ledger.software import Software
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.parts import ACTIVATIONS, gated
from trainledger.model.program import Norm, NormKind, Op, Role, Rope, Weight

ABOVE_INPUTS = "allocated_above_inputs"


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """What was measured: shapes in elements, passes (`forward`, `backward` or both), which peak, the release of the
    benchmark's package, and the device's name."""

    operator: str
    implementation: str
    shape: Mapping[str, Any]
    dtype: str | None = None
    passes: str = "forward+backward"
    metric: str = "allocated_peak"
    release: str = ""
    device: str = ""

    def size(self, *names: str) -> int:
        """The product of these entries of the shape. Raises KeyError where one is missing."""
        product = 1
        for name in names:
            product *= int(self.shape[name])
        return product

    def tape(self) -> Tape:
        """A new tape of a run on the device."""
        return Tape(device=MULTIPROCESSORS.get(self.device, UNKNOWN_DEVICE))

    @property
    def element(self) -> DType:
        """The dtype of the inputs; fp32 where the record says none, as torch makes them."""
        return DTYPES[self.dtype] if self.dtype else FP32


class Written(NamedTuple):
    """An operator on a tape: inputs and weights that need gradients, results, bytes that are given besides; whether the
    input's gradient is laid over a tensor that is there already, whether it runs matrix products, which other values
    the benchmark names, whether it measures the first repetition, with no gradients before, and whether each repetition
    draws the gradient of the result anew."""

    tape: Tape
    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    results: tuple[int, ...]
    given: tuple[int, ...] = ()
    over: bool = False
    products: bool = False
    kept: tuple[int, ...] = ()
    first: bool = False
    drawn: bool = False


def _input(t: Tape, name: str, dtype: DType, *sizes: tuple[Dim, int]) -> int:
    t.scope = name
    return t.outside(tuple(Axis(dim, size) for dim, size in sizes), dtype, True)


def _liger(run: OperatorRun) -> Software:
    device = MULTIPROCESSORS.get(run.device, UNKNOWN_DEVICE)
    return Software(frozenset({"liger"}), {"liger": run.release}, "llama", device)


def _lowered(t: Tape, ops: tuple[Op, ...], x: int, run: OperatorRun, dtypes: tuple[DType, DType]) -> dict[str, int]:
    """The names after these operations ran on `x`; dtypes of weights and of norms."""
    batch, *rest = t.dims[x]
    sequence = rest[0].size if len(rest) > 1 else 1
    setting = Setting(batch.size, sequence, "flash", dtypes[0], dtypes[1])
    names = {"x": x}
    fused = run.implementation != "huggingface"
    frame = Frame(t, setting, names, lambda weight: True, {}, software=_liger(run) if fused else Software())
    lower(frame, ops)
    names.update({f"weight {weight.name}": value for weight, value in frame.params.items()})
    return names


def _weights(names: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(value for name, value in names.items() if name.startswith("weight "))


def rms_norm(run: OperatorRun) -> Written:
    """A norm of rows, its weight in fp32."""
    t = run.tape()
    x = _input(t, "x", run.element, (Dim.TOKENS, run.size("M")), (Dim.HIDDEN, run.size("H")))
    width = (Axis(Dim.HIDDEN, run.size("H")),)
    spec = Norm(NormKind.RMS, Weight("norm.weight", width, Role.NORM))
    names = _lowered(t, (Op("norm", spec, ("x",), ("y",), width),), x, run, (FP32, FP32))
    return Written(t, (x,), _weights(names), (names["y"],), over=run.implementation != "huggingface")


def add_rms_norm(run: OperatorRun) -> Written:
    """A residual sum and its norm, both of them results."""
    t = run.tape()
    pair = [_input(t, "x", run.element, (Dim.TOKENS, run.size("M")), (Dim.HIDDEN, run.size("H"))) for _ in range(1 + 1)]
    total = aten.add(t, pair[0], pair[1])
    width = (Axis(Dim.HIDDEN, run.size("H")),)
    spec = Norm(NormKind.RMS, Weight("norm.weight", width, Role.NORM))
    names = _lowered(t, (Op("norm", spec, ("x",), ("y",), width),), total, run, (FP32, FP32))
    return Written(t, tuple(pair), _weights(names), (names["y"], total))


def layer_norm(run: OperatorRun) -> Written:
    """torch.nn.LayerNorm of rows."""
    t = run.tape()
    x = _input(t, "x", run.element, (Dim.TOKENS, run.size("M")), (Dim.HIDDEN, run.size("N")))
    width = (Axis(Dim.HIDDEN, run.size("N")),)
    spec = Norm(NormKind.LAYER, Weight("norm.weight", width, Role.NORM), Weight("norm.bias", width, Role.NORM))
    names = _lowered(t, (Op("norm", spec, ("x",), ("y",), width),), x, run, (FP32, FP32))
    return Written(t, (x,), _weights(names), (names["y"],))


def gated_mlp(run: OperatorRun) -> Written:
    """A gated feed-forward layer without biases."""
    t = run.tape()
    hidden, act = (Axis(Dim.HIDDEN, run.size("hidden_size")),), ACTIVATIONS[str(run.shape["hidden_act"])]
    batch = run.size("bsz" if "bsz" in run.shape else "B")
    x = _input(t, "x", run.element, (Dim.BATCH, batch), (Dim.SEQUENCE, run.size("T")), (Dim.HIDDEN, hidden[0].size))
    names = _lowered(t, gated("mlp", hidden, run.size("intermediate_size"), act), x, run, (run.element, run.element))
    return Written(t, (x,), _weights(names), (names["x"],), products=True)


def rope(run: OperatorRun) -> Written:
    """Queries and keys of one sequence turned, seen by heads."""
    t = run.tape()
    hidden = run.size("H") if "H" in run.shape else run.size("hidden_size")
    length = run.size("T") if "T" in run.shape else run.size("seq_len")
    head = hidden // run.size("num_q_heads")
    tokens, width = ((Dim.BATCH, 1), (Dim.SEQUENCE, length)), (Dim.HEAD_DIM, head)
    pair = tuple(
        _input(t, name, run.element, *tokens, (Dim.HEADS, run.size(name)), width)
        for name in ("num_q_heads", "num_kv_heads")
    )
    one = Axis(Dim.ONE, 1)
    table: Dims = (one, Axis(Dim.SEQUENCE, length), one, Axis(Dim.ROPE_DIM, head))
    cos, sin = t.outside(table, run.element, False), t.outside(table, run.element, False)
    queries, keys = pair
    if run.implementation == "huggingface":
        outs = rotary.rope(t, Rope(head, head), (queries, keys), (cos, sin))
    else:
        outs = rules_liger.rope(t, (queries, keys), (cos, sin), (False, False))
    numbers = (INT64.bytes_of(length), FP32.bytes_of(head // len(pair)))
    tables = run.element.bytes_of(elements(table))
    return Written(t, pair, (), tuple(outs), (*numbers, tables, tables), over=True, products=True)


def cross_entropy(run: OperatorRun) -> Written:
    """A loss over logits of all tokens."""
    t = run.tape()
    tokens = run.size("B", "T")
    x = _input(t, "logits", run.element, (Dim.TOKENS, tokens), (Dim.VOCAB, run.size("V")))
    target = t.outside((Axis(Dim.TOKENS, tokens),), INT64, False)
    given = (INT64.bytes_of(tokens),)
    if run.implementation == "huggingface":
        return Written(t, (x,), (), (torch_cross_entropy(t, x, target),), given)
    rows = (Axis(Dim.TOKENS, tokens),)
    losses = t.fresh(rows, run.element, False, "loss of each token")
    t.run(Prim("zeros", (), (losses,), (), (), ()))
    work = tuple(aten.temporary(t, rows, dtype, "tokens that count") for dtype in (BOOL, INT64))
    count = t.fresh((Axis(Dim.ONE, 1),), INT64, False, "count")
    t.run(Prim("sum", (target,), (count,), (), (), work))
    loss = t.fresh((Axis(Dim.ONE, 1),), run.element, True, "loss")
    t.run(Prim("liger cross-entropy", (x, target), (loss,), (), (Step(Code.PASS, 0),), ()))
    t.end([losses])
    return Written(t, (x,), (), (loss,), given, over=True)


def head_and_loss(run: OperatorRun) -> Written:
    """A head and its loss: apart, or fused by chunks of tokens."""
    t = run.tape()
    short = "BT" in run.shape
    tokens = run.size("BT" if short else "tokens")
    hidden = Axis(Dim.HIDDEN, run.size("H" if short else "hidden"))
    vocab = Axis(Dim.VOCAB, run.size("V" if short else "vocab"))
    x = _input(t, "hidden states", run.element, (Dim.TOKENS, tokens), (Dim.HIDDEN, hidden.size))
    table = Weight("head.weight", (vocab, hidden), Role.HEAD)
    weight = t.outside(table.dims, run.element, True, table)
    target = t.outside((Axis(Dim.TOKENS, tokens),), INT64, False)
    inputs = fused_head.Inputs(x, weight, None, 0)
    if run.implementation == "liger":
        loss = fused_head.by_tokens(t, inputs, run.release)
    else:
        return _apart(t, run, (x, weight), target)
    return Written(t, (x,), (weight,), (loss,), (INT64.bytes_of(tokens),), products=True)


def _apart(t: Tape, run: OperatorRun, pair: tuple[int, int], target: int) -> Written:
    """The whole logits; Apple's benchmark caps them softly and takes the loss in fp32, XTuner's keeps them by name."""
    logits = linear(t, pair[0], (*t.dims[pair[0]][:-1], t.dims[pair[1]][0]), pair[1])
    read, named = logits, run.operator == "linear_cross_entropy" and run.metric != ABOVE_INPUTS
    if run.metric == ABOVE_INPUTS:
        capped = aten.scale(t, aten.unary(t, "tanh", aten.scale(t, logits), saves_out=True))
        t.end([logits])
        read = aten.to(t, capped, FP32)
        logits = capped
    loss = torch_cross_entropy(t, read, target)
    t.end([read, logits])
    given = (INT64.bytes_of(elements(t.dims[target])),)
    return Written(t, pair[:1], pair[1:], (loss,), given, products=True, kept=(logits,) if named else (), first=named)


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("rms_norm", "huggingface"): rms_norm,
    ("rms_norm", "liger"): rms_norm,
    ("layer_norm", "huggingface"): layer_norm,
    ("fused_add_rms_norm", "huggingface"): add_rms_norm,
    ("swiglu", "huggingface"): gated_mlp,
    ("swiglu", "liger"): gated_mlp,
    ("geglu", "huggingface"): gated_mlp,
    ("geglu", "liger"): gated_mlp,
    ("rope", "huggingface"): rope,
    ("rope", "liger"): rope,
    ("cross_entropy", "huggingface"): cross_entropy,
    ("cross_entropy", "liger"): cross_entropy,
    ("fused_linear_cross_entropy", "huggingface"): head_and_loss,
    ("fused_linear_cross_entropy", "liger"): head_and_loss,
    ("linear_cross_entropy", "torch"): head_and_loss,
}
