"""Operations of a block as primitives: one rule per kind of operation, as Transformers runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, DType
from trainledger.ledger import aten, attention, experts, nn, rotary
from trainledger.ledger.activations import activation
from trainledger.ledger.tape import Tape
from trainledger.model import program as p
from trainledger.model.program import NormKind, Op, Weight


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rules need to know of the run: tokens, the attention's implementation, dtypes, dropout."""

    batch: int
    sequence: int
    attention: str
    weights: DType
    norms: DType
    autocast: DType | None = None
    training: bool = True
    torch: str = ""
    architecture: str = ""
    fallback_kernels: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """One block being written on a tape: the tape, the setting, names bound to values, parameters by weight."""

    tape: Tape
    setting: Setting
    names: dict[str, int]
    trained: Callable[[Weight], bool]
    params: dict[Weight, int]

    def param(self, weight: Weight | None) -> int | None:
        """The parameter's value on this tape (None for None)."""
        if weight is None:
            return None
        if weight not in self.params:
            dtype = self.setting.norms if weight.role is p.Role.NORM else self.setting.weights
            self.params[weight] = self.tape.outside(weight.dims, dtype, self.trained(weight), weight)
        return self.params[weight]

    def need(self, weight: Weight) -> int:
        """The parameter's value on this tape."""
        value = self.param(weight)
        assert value is not None
        return value

    def dims(self, tail: Dims) -> Dims:
        """Dims of a tensor of the micro-batch: batch, sequence, then what the operation makes per token."""
        return (Axis(Dim.BATCH, self.setting.batch), Axis(Dim.SEQUENCE, self.setting.sequence), *tail)


def _norm(f: Frame, spec: p.Norm, x: int) -> int:
    t, weight = f.tape, f.param(spec.weight)
    if spec.kind is NormKind.LAYER:
        return nn.layer_norm(t, x, weight, f.param(spec.bias))
    if spec.kind is NormKind.LAYER_MANUAL and weight is not None:
        return _layer_by_hand(t, x, weight)
    high = aten.to(t, x, FP32)
    var = aten.mean(t, aten.square(t, high))
    inv = aten.rsqrt(t, aten.shift(t, var))
    normal = aten.mul(t, high, inv, "normalised")
    if spec.kind is NormKind.RMS and weight is not None:
        out = aten.mul(t, weight, aten.to(t, normal, t.dtype[x]), "output")
        t.end([var, normal])
        return out
    if spec.kind is NormKind.RMS_ONE_PLUS and weight is not None:
        factor = aten.shift(t, aten.to(t, weight, FP32))
        return aten.to(t, aten.mul(t, normal, factor), t.dtype[x])
    if weight is None:
        return aten.to(t, normal, t.dtype[x])
    out = aten.to(t, aten.mul(t, weight, normal), t.dtype[x])
    t.end([var, normal])
    return out


def _layer_by_hand(t: Tape, x: int, weight: int) -> int:
    """CohereLayerNorm: mean and variance in fp32, times the weight in fp32, then the cast back."""
    high = aten.to(t, x, FP32)
    mean = aten.mean(t, high)
    var = aten.mean(t, aten.square(t, aten.sub(t, high, mean)))
    centred = aten.sub(t, high, mean)
    normal = aten.mul(t, centred, aten.rsqrt(t, aten.shift(t, var)), "normalised")
    t.end([high])
    out = aten.to(t, aten.mul(t, aten.to(t, weight, FP32), normal), t.dtype[x])
    t.end([mean, var])
    return out


def _rope(f: Frame, spec: p.Rope, q: int, k: int) -> list[int]:
    cos, sin = f.names[f"cos{spec.tables}"], f.names[f"sin{spec.tables}"]
    return rotary.rope(f.tape, spec, (q, k), (cos, sin))


def _attention(f: Frame, spec: p.Attention, q: int, k: int, v: int) -> int:
    if f.setting.attention == "eager":
        mask = f.names.get("mask_sliding" if spec.window else "mask")
        out, weights = attention.eager(f.tape, q, k, v, spec, mask)
        f.names["attention weights"] = weights  # returned too, so the layer holds them until it ends
        return out
    return attention.flash(f.tape, q, k, v, spec)


def _times_tensor(f: Frame, x: int) -> int:
    """Times a 0-dim buffer of the weights' dtype."""
    return aten.mul(f.tape, x, f.tape.outside((), f.setting.weights, False), "scaled")


def _apply(f: Frame, op: Op, ins: list[int]) -> list[int]:
    """The operation's primitives on the tape; returns the values of its `outs`."""
    t, dims = f.tape, f.dims(op.dims)
    match op.spec:
        case p.Linear(weight, bias, conv1d, flat):
            kind = nn.conv1d if conv1d else nn.flat_linear if flat else nn.linear
            rows = t.dims[ins[0]][: len(dims) - len(op.dims)]
            return [kind(t, ins[0], (*rows, *op.dims), f.need(weight), f.param(bias))]
        case p.Norm():
            return [_norm(f, op.spec, ins[0])]
        case p.View(rows=True):
            return [aten.rows(t, ins[0])]
        case p.View(rotated, keys):
            copied = rotated or (f.setting.attention == "eager" and not (keys and f.setting.batch == 1))
            return [aten.heads_first(t, ins[0], dims) if copied else aten.view(t, ins[0], dims)]
        case p.Split(parts, True):
            return aten.chunk(t, ins[0], [f.dims(part) for part in parts])
        case p.Split(parts, False):
            return [aten.part(t, ins[0], f.dims(part)) for part in parts]
        case p.First():
            return [aten.part(t, ins[0], (dims[0], Axis(Dim.ONE, 1), *op.dims))]
        case p.Copy():
            return [aten.copy(t, ins[0])]
        case p.Rope():
            return _rope(f, op.spec, ins[0], ins[1])
        case p.Attention():
            return [_attention(f, op.spec, ins[0], ins[1], ins[2])]
        case p.Act(kind):
            return [activation(t, kind, ins[0])]
        case p.Multiply():
            return [aten.mul(t, ins[0], ins[1])]
        case p.Add():
            return [aten.add(t, ins[0], ins[1])]
        case p.Scale(tensor):
            return [_times_tensor(f, ins[0]) if tensor else aten.scale(t, ins[0])]
        case p.Dropout(chance):
            return [aten.dropout(t, ins[0], chance if f.setting.training else 0)]
        case p.Embed(weight, per_batch):
            shared = (Axis(Dim.ONE, 1), *dims[1:])
            return [nn.embedding(t, ins[0], f.need(weight), dims if per_batch else shared)]
        case p.Router(weight):
            return experts.router(t, op.spec, ins[0], f.need(weight))
        case p.Experts():
            return [experts.experts(t, op.spec, ins, f.need(op.spec.gate_up), f.need(op.spec.down))]
        case _:
            raise TypeError(f"no rule for {type(op.spec).__name__}")


def lower(frame: Frame, ops: tuple[Op, ...]) -> None:
    """Write the operations on the frame's tape, in order; names bound at the end stay bound."""
    tape, names = frame.tape, frame.names
    for op in ops:
        tape.scope = op.name
        outs = _apply(frame, op, [names[name] for name in op.ins])
        gone = [names.pop(name) for name in op.drop]
        for name, value in zip(op.outs, outs, strict=True):
            if name in names:
                gone.append(names[name])
            names[name] = value
        tape.end(gone)

