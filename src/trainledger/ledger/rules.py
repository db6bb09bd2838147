"""Operations of a block as primitives: one rule per kind of operation, as Transformers runs it."""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.quantization import STACKED_EXPERTS
from trainledger.facts.versions import at_least
from trainledger.ledger import (
    aten,
    attention,
    experts,
    experts_loop,
    fused_lora,
    layers,
    nn,
    prompts,
    rotary,
    rules_liger,
    rules_litgpt,
)
from trainledger.ledger.activations import activation
from trainledger.ledger.frame import Frame
from trainledger.ledger.fused import Site
from trainledger.ledger.tape import Tape
from trainledger.ledger.visits import Call, call_of
from trainledger.model import program as p
from trainledger.model.program import NormKind, Op, Weight

OWN = ("k", "v")  # what programs call an attention's keys and values


def _norm(f: Frame, spec: p.Norm, x: int) -> int:
    t, weight = f.tape, f.param(spec.weight)
    if weight is not None and spec.kind in rules_liger.RMS_KINDS and rules_liger.replaces(f.software):
        return rules_liger.rms_norm(t, f.software, spec, x, weight)
    if spec.kind is NormKind.LAYER:
        return nn.layer_norm(t, x, weight, f.param(spec.bias))
    if spec.kind is NormKind.LAYER_MANUAL and weight is not None:
        return _layer_by_hand(t, x, weight)
    if weight is not None and spec.kind in rules_litgpt.NORMS:
        return rules_litgpt.norm(t, spec.kind, x, weight)
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
    cos, sin = (_table(f, f"{wave}{spec.tables}", spec.rotary) for wave in ("cos", "sin"))
    if spec.join is p.Join.NONE and rules_liger.replaces(f.software):
        heads, turned = len(f.dims(())), p.View(keys=True)
        copied = _copied(f, p.View(), f.tape.dims[q][heads:]), _copied(f, turned, f.tape.dims[k][heads:])
        return rules_liger.rope(f.tape, (q, k), (cos, sin), copied)
    return rotary.rope(f.tape, spec, (q, k), (cos, sin))


def _table(f: Frame, name: str, rotary: int) -> int:
    """A table that the model's forward made, or one that is a buffer of the model in fp32."""
    if name not in f.names:
        single = Axis(Dim.ONE, 1)
        dims = (single, Axis(Dim.SEQUENCE, f.setting.sequence), single, Axis(Dim.ROPE_DIM, rotary))
        return f.tape.outside(dims, FP32, False)
    return f.names[name]


def _attention(f: Frame, spec: p.Attention, q: int, k: int, v: int) -> int:
    choice, mask = f.choice(spec), f.names.get(spec.mask_name)
    if choice.kernel is Kernel.EAGER:
        out, weights = attention.eager(f.tape, (q, k, v), spec, mask)
        f.names["attention weights"] = weights  # returned too, so the layer holds them until it ends
        return out
    call = attention.Call(mask, Site(choice.kernel, f.setting.torch, f.setting.architecture), choice.repeats)
    return attention.handed(f.tape, (q, k, v), spec, call)


def _copied(f: Frame, spec: p.View, dims: Dims) -> bool:
    """Whether the gradient of a projection seen by heads arrives head by head, and is copied back to token order."""
    kernel = f.kernels[0].kernel if f.kernels else None
    if spec.rotated and rules_liger.replaces(f.software):
        return False  # a kernel turns them in token order
    if spec.rotated or kernel is Kernel.MATH or (f.kernels and f.kernels[0].padded):
        return True
    if kernel is Kernel.EAGER or (kernel is None and f.setting.attention == Kernel.EAGER):
        return not (spec.keys and f.setting.batch == 1)
    # the sum over query heads that share keys and values writes head by head
    return bool(f.kernels) and f.kernels[0].summed and bool(dims) and dims[0].dim is Dim.KV_HEADS


def _apart(f: Frame, op: Op, x: int) -> bool:
    """Whether the gradient of keys or values that stand behind a prefix's, a part of that of both, is copied back to
    token order. The memory-efficient kernel leaves it in that order, but a linear layer over several sequences takes
    none with gaps between them."""
    if prompts.PREFIX[0] not in f.names or not f.kernels or op.outs[0] not in OWN:
        return False
    if f.kernels[0].kernel is Kernel.EFFICIENT:
        projected = any(prim.kind == "linear" and x in prim.outs for prim in f.tape.prims)
        return projected and f.setting.batch > 1
    return f.kernels[0].kernel not in (Kernel.EAGER, Kernel.MATH)


def _times_tensor(f: Frame, x: int) -> int:
    """Times a 0-dim buffer of the weights' dtype."""
    return aten.mul(f.tape, x, f.tape.outside((), f.setting.weights, False), "scaled")


def _apply(f: Frame, op: Op, ins: list[int]) -> list[int]:
    """The operation's primitives on the tape; returns the values of its `outs`."""
    t, dims = f.tape, f.dims(op.dims)
    match op.spec:
        case p.Linear():
            return [layers.linear(f, op.spec, ins[0], op.dims)]
        case p.Norm():
            return [_norm(f, op.spec, ins[0])]
        case p.Rope():
            return _rope(f, op.spec, ins[0], ins[1])
        case p.Attention():
            return [_attention(f, op.spec, ins[0], ins[1], ins[2])]
        case p.Act(kind):
            return [activation(t, kind, ins[0])]
        case p.Multiply(act):
            return [rules_liger.gated(t, ins[0], ins[1]) if act else aten.mul(t, ins[0], ins[1])]
        case p.Add():
            return [aten.add(t, ins[0], ins[1])]
        case p.Scale(tensor):
            return [_times_tensor(f, ins[0]) if tensor else aten.scale(t, ins[0])]
        case p.Dropout(chance):
            return [aten.dropout(t, ins[0], chance if f.setting.training else 0)]
        case p.Embed():
            return [layers.embedding(f, op.spec, ins[0], dims if op.spec.per_batch else (Axis(Dim.ONE, 1), *dims[1:]))]
        case p.Prompts():
            return layers.prompted(f, op.spec, ins[0])
        case p.Router() | p.Experts() | p.Looped():
            return _routed(f, op.spec, ins)
        case _:
            return _shaped(f, op, ins[0])


def _routed(f: Frame, spec: p.Router | p.Experts | p.Looped, ins: list[int]) -> list[int]:
    if isinstance(spec, p.Router):
        return experts.router(f.tape, spec, ins[0], f.need(spec.weight))
    if isinstance(spec, p.Looped):
        return [_looped(f, spec, ins)]
    frozen = not (f.trained(spec.gate_up) or f.trained(spec.down))
    if frozen and f.setting.transformers and not at_least(f.setting.transformers, STACKED_EXPERTS.since):
        return [experts_loop.experts(f.tape, spec, ins)]
    return [experts.experts(f.tape, spec, ins, f.need(spec.gate_up), f.need(spec.down))]


def _looped(f: Frame, spec: p.Looped, ins: list[int]) -> int:
    """Each linear layer of each expert is a module that is called by itself."""
    t = f.tape

    def linear(weight: Weight, x: int, out: Axis) -> int:
        first = len(t.prims)
        made = nn.flat_linear(t, x, (t.dims[x][0], out), f.need(weight))
        f.calls.append(Call(weight.name.rpartition(".")[0], (weight,), True, True, first, len(t.prims)))
        return made

    total, kept = experts_loop.looped(t, spec, ins, linear)
    f.names.update(zip(p.KEPT, kept, strict=True))
    return total


def _shaped(f: Frame, op: Op, x: int) -> list[int]:
    """Other shapes of one tensor, and copies of it."""
    t, dims = f.tape, f.dims(op.dims)
    match op.spec:
        case p.View(rows=True):
            return [aten.rows(t, x)]
        case p.View():
            lone = len(op.dims) > 1 and op.dims[0].size == 1  # one head lies the same either way
            copied = (_copied(f, op.spec, op.dims) and not lone) or _apart(f, op, x)
            return [aten.heads_first(t, x, dims) if copied else aten.view(t, x, dims)]
        case p.Split(parts, True):
            return aten.chunk(t, x, [f.dims(part) for part in parts])
        case p.Split(parts, False):
            return [aten.part(t, x, f.dims(part)) for part in parts]
        case p.First():
            return [aten.part(t, x, (dims[0], Axis(Dim.ONE, 1), *op.dims))]
        case p.Copy():
            return [aten.copy(t, x)]
        case p.Repeat(heads):
            return [attention.repeated(t, x, heads)]
        case _:
            raise TypeError(f"no rule for {type(op.spec).__name__}")


def asked(ops: tuple[Op, ...], inside: bool) -> tuple[Op, ...]:
    """The prologue whose word embedding's result is made to need a gradient, as `enable_input_require_grads` does.
    `inside`: what the model does to the rows at once is done by the embedding's own module."""
    first = next((at for at, op in enumerate(ops) if op.ins == ("input_ids",)), -1)
    if first < 0:
        return ops
    last = max(at for at, op in enumerate(ops) if at == first or (inside and op.name == ops[first].name))
    return (*ops[:last], replace(ops[last], asked=True), *ops[last + 1 :])


def lower(frame: Frame, ops: tuple[Op, ...]) -> None:
    """Write the operations on the frame's tape, in order; names bound at the end stay bound."""
    tape, names = frame.tape, frame.names
    ops = rules_liger.rewritten(ops, frame.software)
    fused, ready = fused_lora.groups(frame.software, ops), dict[str, int]()
    frame.kernels[:] = [frame.choice(op.spec) for op in ops if isinstance(op.spec, p.Attention)]
    for op in ops:
        tape.scope, first = op.name, len(tape.prims)
        if isinstance(op.spec, p.Attention):
            prompts.extended(tape, names, op.ins[1:])
            frame.keys.append(names[op.ins[1]])
        ins = [names[name] for name in op.ins]
        if isinstance(op.spec, p.Linear) and op.name in fused and fused_lora.applies(tape, ins[0]):
            if op.name not in ready:  # the first of a group makes the results of all
                ready |= fused_lora.run(frame, fused[op.name], ins[0])
            outs = [ready.pop(op.name)]
        else:
            outs = _apply(frame, op, ins)
        frame.marks.append((op.name, first, len(tape.prims)))
        if op.asked and not tape.grad[outs[0]]:
            tape.grad[outs[0]] = True
            tape.leaves.add(outs[0])
        if not isinstance(op.spec, p.Looped):  # which has calls of its own
            frame.calls.append(call_of(op, first, len(tape.prims)))
        gone = [names.pop(name) for name in op.drop]
        for name, value in zip(op.outs, outs, strict=True):
            if name in names:
                gone.append(names[name])
            names[name] = value
        tape.end(gone)
