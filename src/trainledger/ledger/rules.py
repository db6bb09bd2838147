"""Operations of a block as primitives: one rule per kind of operation, as Transformers runs it."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.quantization import STACKED_EXPERTS
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import Change, holds
from trainledger.facts.versions import at_least
from trainledger.ledger import (
    aten,
    attend,
    attention,
    experts,
    experts_loop,
    experts_permuted,
    experts_torchtitan,
    fused_lora,
    latent,
    layers,
    mega_moe,
    norms,
    prompts,
    rotary,
    rules_chosen,
    rules_liger,
    rules_megatron,
    rules_parallel,
    rules_te,
    rules_torchtitan,
    tiled,
)
from trainledger.ledger.activations import activation
from trainledger.ledger.edges import TURNS
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_router import mega_of
from trainledger.ledger.visits import Call, call_of
from trainledger.model import program as p
from trainledger.model.operations_megatron_moe import MoeSpec
from trainledger.model.operations_parallel import Copied, Divided, Gathered, Summed
from trainledger.model.program import Op, Weight

KEYS = ("k", "v")  # what programs call an attention's keys and values
HIGH = Change.HIGH_GATE
OWN = (TORCHTITAN, PITHTRAIN)  # frameworks that write latent attention and experts themselves


def _rope(f: Frame, spec: p.Rope, both: list[int]) -> list[int]:
    if spec.join is p.Join.OWN:
        return rotary.own(f.tape, spec, (both[0], both[1]), f.setting.cast(f.tape, f.names["cos"]))
    cos, sin = (_table(f, f"{wave}{spec.tables}", spec.rotary) for wave in ("cos", "sin"))
    if spec.join is p.Join.NONE and rules_liger.replaces(f.software) and both[1:]:  # it turns both at once
        q, k = both
        heads, turned = len(f.dims(())), p.View(keys=True)
        copied = _copied(f, p.View(), f.tape.dims[q][heads:]), _copied(f, turned, f.tape.dims[k][heads:])
        return rules_liger.rope(f.tape, (q, k), (cos, sin), copied)
    return rotary.rope(f.tape, spec, both, (cos, sin))


def _table(f: Frame, name: str, rotary: int) -> int:
    """A table that the model's forward made, or one that is a buffer of the model in fp32."""
    if name not in f.names:
        single = Axis(Dim.ONE, 1)
        dims = (single, Axis(Dim.SEQUENCE, f.setting.sequence), single, Axis(Dim.ROPE_DIM, rotary))
        return f.tape.outside(dims, FP32, False)
    return f.names[name]


def _copied(f: Frame, spec: p.View, dims: Dims) -> bool:
    """Whether the gradient of a projection seen by heads arrives head by head, and is copied back to token order."""
    kernel = f.kernels[0].kernel if f.kernels else None
    if spec.rotated and rules_liger.replaces(f.software):
        return False  # a kernel turns them in token order
    if f.software.exchanges:
        return True  # they come back part by part of the sequence
    if spec.rotated or kernel is Kernel.MATH or (f.kernels and f.kernels[0].padded):
        return True
    if kernel is Kernel.EAGER or (kernel is None and f.setting.attention == Kernel.EAGER):
        return not (spec.keys and f.setting.batch == 1)
    # the sum over query heads that share keys and values writes head by head
    return bool(f.kernels) and f.kernels[0].summed and bool(dims) and dims[0].dim is Dim.KV_HEADS


def _spread(f: Frame, q: int, k: int) -> tuple[bool, bool]:
    """Whether the gradients of queries and keys that turn in token order arrive head by head."""
    own, shared = (f.tape.dims[x][len(f.dims(())) :] for x in (q, k))
    return _copied(f, p.View(), own), _copied(f, p.View(keys=own == shared), shared)


def _apart(f: Frame, op: Op, x: int) -> bool:
    """Whether the gradient of keys or values that stand behind a prefix's, a part of that of both, is copied back to
    token order. The memory-efficient kernel leaves it in that order, but a linear layer over several sequences takes
    none with gaps between them."""
    if prompts.PREFIX[0] not in f.names or not f.kernels or op.outs[0] not in KEYS:
        return False
    if f.kernels[0].kernel is Kernel.EFFICIENT:
        projected = any(prim.kind == "linear" and x in prim.outs for prim in f.tape.prims)
        return projected and f.setting.batch > 1
    return f.kernels[0].kernel not in (Kernel.EAGER, Kernel.MATH)


def _times_tensor(f: Frame, x: int, inplace: bool) -> int:
    """Times a buffer of one element, of the weights' dtype."""
    factor = f.tape.outside((), f.setting.weights, False)
    return aten.scale_into(f.tape, x, factor) if inplace else aten.mul(f.tape, x, factor, "scaled")


def _apply(f: Frame, op: Op, ins: list[int]) -> list[int]:
    """The operation's primitives on the tape; returns the values of its `outs`."""
    t, dims = f.tape, f.dims(op.dims)
    match op.spec:
        case p.Linear():
            return [layers.linear(f, op.spec, ins[0], op.dims)]
        case p.Norm():
            return [norms.norm(f, op.spec, ins[0])]
        case p.Rope():
            return _rope(f, op.spec, ins)
        case p.Attention():
            return attend.results_of(f, op.spec, (ins[0], ins[1], ins[2]))
        case p.Act(kind):
            return [activation(t, kind, ins[0])]
        case p.Multiply(act):
            return [rules_liger.gated(t, ins[0], ins[1]) if act else aten.mul(t, ins[0], ins[1])]
        case p.Add(inplace):
            return [aten.add_into(t, ins[0], ins[1]) if inplace else aten.add(t, ins[0], ins[1])]
        case p.Scale(tensor, inplace):
            return [_times_tensor(f, ins[0], inplace) if tensor else aten.scale(t, ins[0])]
        case p.Dropout(chance):
            return [aten.dropout(t, ins[0], chance if f.setting.training else 0)]
        case p.Embed():
            return [layers.embedding(f, op.spec, ins[0], dims if op.spec.per_batch else (Axis(Dim.ONE, 1), *dims[1:]))]
        case p.Prompts():
            return layers.prompted(f, op.spec, ins[0])
        case _ if isinstance(op.spec, rules_chosen.CHOSEN):
            return rules_chosen.apply(f, op.spec, ins)
        case p.Pairs() | p.Concat() | p.FilledKeys():
            return _latent(f, op.spec, ins, dims)
        case p.Router() | p.Experts() | p.Looped():
            return _routed(f, op.spec, ins)
        case Gathered() | Summed() | Copied() | Divided():
            return [rules_parallel.apply(f, op.spec, ins[0])]
        case _ if rules_megatron.knows(op.spec) or isinstance(op.spec, MoeSpec):
            return _megatron(f, op, ins)
        case _:
            return _shaped(f, op, ins[0])


def _megatron(f: Frame, op: Op, ins: list[int]) -> list[int]:
    """Megatron-Core's operations, by its own layers or by Transformer Engine's."""
    if isinstance(op.spec, MoeSpec):
        return mega_moe.apply(f, op.spec, ins)
    if mega_of(f).engine is None:
        return rules_megatron.apply(f, op, ins)
    return rules_te.apply(f, op, ins)


def _latent(f: Frame, spec: p.Pairs | p.Concat | p.FilledKeys, ins: list[int], dims: Dims) -> list[int]:
    """What attention through latents runs besides its projections and norms."""
    if isinstance(spec, p.Concat):
        return [latent.joined(f.tape, ins, dims)]
    if f.software.framework in OWN:
        if isinstance(spec, p.FilledKeys):
            return [rules_torchtitan.keys(f.tape, ins[0], ins[1], dims)]
        table = _table(f, "cos", f.tape.dims[ins[0]][-1].size)
        return rules_torchtitan.complex_rope(f.tape, (ins[0], ins[1]), table)
    if isinstance(spec, p.FilledKeys):
        return [latent.filled(f.tape, ins[0], ins[1], dims)]
    if spec.turn is p.Turn.WHOLE:
        return latent.whole(f.tape, (ins[0], ins[1]), f.names[TURNS], _spread(f, ins[0], ins[1]))
    if spec.turn is p.Turn.COMPOUND:
        by_token = bool(f.kernels) and f.kernels[0].kernel is Kernel.EFFICIENT
        return latent.compound(f.tape, (ins[0], ins[1]), f.names[TURNS], by_token)
    tables = f.names["cos"], f.names["sin"]
    if spec.turn is p.Turn.HALVES:
        return [latent.halves(f.tape, x, tables) for x in ins]
    return latent.interleaved(f.tape, ins[0], ins[1], tables)


def _routed(f: Frame, spec: p.Router | p.Experts | p.Looped, ins: list[int]) -> list[int]:
    if f.software.framework in OWN:
        return _by_titan(f, spec, ins)
    if isinstance(spec, p.Router):
        low = spec.adapter
        layer = None if low is None else lambda x, out: layers.expert(f, spec.weight, low, x, out)
        return experts.router(f.tape, spec, ins[0], f.need(spec.weight), layer)
    if isinstance(spec, p.Looped):
        return [_looped(f, spec, ins)]
    frozen = not (f.trained(spec.gate_up) or f.trained(spec.down))
    if frozen and f.setting.transformers and not at_least(f.setting.transformers, STACKED_EXPERTS.since):
        return [experts_loop.experts(f.tape, spec, ins)]
    return [experts.experts(f.tape, spec, ins, f.need)]


def _by_titan(f: Frame, spec: p.Router | p.Experts | p.Looped, ins: list[int]) -> list[int]:
    version = f.software.release(TORCHTITAN)
    copied = f.software.framework == PITHTRAIN or holds(Change.PERMUTES, version) or holds(Change.UNSORTS, version)
    if copied and not (isinstance(spec, p.Router) and f.software.framework == TORCHTITAN and holds(HIGH, version)):
        return experts_permuted.apply(f, spec, ins)
    if isinstance(spec, p.Router):
        return experts_torchtitan.router(f.tape, spec, ins[0], f.need(spec.weight))
    assert isinstance(spec, p.Experts)
    return experts_torchtitan.apply(f, spec, ins)


def _looped(f: Frame, spec: p.Looped, ins: list[int]) -> int:
    """Each linear layer of each expert is a module that is called by itself."""
    t = f.tape
    low = dict(zip(spec.weights, spec.adapters, strict=True)) if spec.adapters else {}

    def linear(weight: Weight, x: int, out: Axis) -> int:
        first = len(t.prims)
        made = layers.expert(f, weight, low.get(weight), x, out)
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
            copied = not op.spec.straight and ((_copied(f, op.spec, op.dims) and not lone) or _apart(f, op, x))
            return [aten.heads_first(t, x, dims) if copied else aten.view(t, x, dims)]
        case p.Split(parts, True):
            return aten.chunk(t, x, [f.dims(part) for part in parts])
        case p.Split(parts, False):
            return [aten.part(t, x, f.dims(part)) for part in parts]
        case p.Taken(part):
            return [aten.taken(t, x, f.dims(part))]
        case p.First():
            return [aten.part(t, x, (dims[0], Axis(Dim.ONE, 1), *op.dims))]
        case p.Copy():
            return [aten.copy(t, x)]
        case p.Repeat(heads):
            return [attention.repeated(t, x, heads)]
        case _:
            raise TypeError(f"no rule for {type(op.spec).__name__}")


def lower(frame: Frame, ops: tuple[Op, ...]) -> None:
    """Write the operations on the frame's tape, in order; names bound at the end stay bound."""
    tape, names = frame.tape, frame.names
    ops = tiled.joined(ops, frame.software)
    ops = rules_te.joined(rules_liger.rewritten(ops, frame.software), frame.software)
    fused, ready, late = fused_lora.groups(frame.software, ops), dict[str, int](), ""
    frame.kernels[:] = [frame.choice(op.spec) for op in ops if isinstance(op.spec, p.Attention)]
    for op in ops:
        tape.scope, first = op.name, len(tape.prims)
        if isinstance(op.spec, p.Attention):
            prompts.extended(tape, names, op.ins[1:])
            frame.attended(names[op.ins[1]], names[op.ins[2]])
        experts_torchtitan.settle(tape, names, late if late in op.ins else "")
        ins = [names[name] for name in op.ins]
        if isinstance(op.spec, p.Linear) and op.name in fused and fused_lora.applies(tape, ins[0]):
            if op.name not in ready:  # the first of a group makes the results of all
                ready |= fused_lora.run(frame, fused[op.name], ins[0])
            outs = [ready.pop(op.name)]
        elif isinstance(op.spec, p.Tiled):
            outs = [tiled.mlp(frame, op, op.spec, ins[0])]
        else:
            frame.wrapped(op.folds)
            outs = _apply(frame, op, ins)
            frame.unwrapped()
        frame.marks.append((op.name, first, len(tape.prims)))
        if op.asked and outs and not tape.grad[outs[0]]:
            tape.grad[outs[0]] = True
            tape.leaves.add(outs[0])
        if not isinstance(op.spec, p.Looped | p.Tiled):  # which have calls of their own
            frame.calls.append(call_of(op, first, len(tape.prims)))
        gone = [names.pop(name) for name in op.drop]
        late = op.outs[0] if op.outs and not outs else late
        for name, value in zip(op.outs if outs else (), outs, strict=True):
            if name in names:
                gone.append(names[name])
            names[name] = value
        tape.end(gone)
    experts_torchtitan.settle(tape, names, late)
