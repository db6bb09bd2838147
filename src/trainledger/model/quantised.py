"""A model whose linear layers are quantised: which are, and the tensors that each weight is stored as.

Sources: transformers/quantizers/base.py and integrations/bitsandbytes.py, get_keys_to_not_convert (4.45.2 to 5.24.0):
all linear layers of the model but its output embedding and what is tied to it; GPT-2's transposed layers are among
them. Experts are linear layers of their own before 5.0, and stacked parameters, which are left alone, from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.base.sources import Source
from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.peft import ADAPTERS
from trainledger.facts.quantization import BNB_4, FLATTENED, QUANT_KINDS, STACKED_EXPERTS, Part, Per, Product
from trainledger.facts.versions import at_least
from trainledger.model.program import Embed, Experts, Linear, Looped, Model, Op, Packing, Role, Weight
from trainledger.plan.schema import Plan

HALVES = ("gate", "up")


class Stored(NamedTuple):
    """One tensor of a weight: its name, entries, dtype, how many equal ones the weight has, and who makes it (None: the
    model's own class)."""

    name: str
    dims: Dims
    dtype: DType
    copies: int
    source: Source | None = None


def packing_of(plan: Plan) -> Packing | None:
    """How the plan's weights are quantised; None where they are not."""
    given, precision = plan.quantization, plan.precision
    if given is None:
        return None
    kind = QUANT_KINDS[given.kind]
    compute = kind.reads or DTYPES[precision.compute]
    # parameters that k-bit preparation raised to fp32 were loaded in the compute dtype
    raised = precision.weights == "fp32" and precision.compute != "fp32"
    loaded = DTYPES[precision.compute if raised else precision.weights]
    release = plan.stack.versions.get(kind.package, "")
    four = kind.package == BNB_4.package and kind.product is Product.DEQUANTISE
    whole = plan.parallel.strategy in ("none", "ddp")  # no engine or flat part keeps another tensor of them
    cast = four and raised and whole and at_least(release or None, BNB_4.casts_biases)
    group = max(given.group_size or 0, 0)
    return Packing(kind, given.double, group, release, compute, loaded, compute if cast else None)


def quantised(model: Model, packing: Packing, transformers: str) -> Model:
    """The model with its linear layers' weights packed."""
    apart = not at_least(transformers or None, STACKED_EXPERTS.since)
    base = model.embeddings[0].name.partition(".")[0] + "."
    kept = {op.spec.weight for op in model.prologue if isinstance(op.spec, Embed)}

    def packed(weight: Weight) -> Weight:
        return weight if weight in kept else replace(weight, packed=packing)

    def written(op: Op) -> Op:
        if isinstance(op.spec, Linear):
            bias = op.spec.bias and replace(op.spec.bias, dtype=packing.biases or op.spec.bias.dtype)
            return replace(op, spec=replace(op.spec, weight=packed(op.spec.weight), bias=bias))
        if isinstance(op.spec, Looped):
            parts = (tuple(packed(weight) for weight in expert) for expert in op.spec.experts)
            return replace(op, spec=replace(op.spec, experts=tuple((one[0], one[1], one[2]) for one in parts)))
        if isinstance(op.spec, Experts) and apart:
            return replace(op, spec=replace(op.spec, gate_up=packed(op.spec.gate_up), down=packed(op.spec.down)))
        return op

    prologue = tuple(written(op) for op in model.prologue)
    head = tuple(written(op) if op.name.startswith(base) and "logits" not in op.outs else op for op in model.head.ops)
    blocks = []
    for block in model.blocks:
        ops = tuple(written(op) for op in block.ops)
        blocks.append(replace(block, ops=ops, weights=_weights(block.weights, block.ops, ops)))
    return replace(
        model,
        prologue=prologue,
        embeddings=_weights(model.embeddings, model.prologue, prologue),
        blocks=tuple(blocks),
        head=replace(model.head, ops=head, weights=_weights(model.head.weights, model.head.ops, head)),
    )


def _weights(weights: Iterable[Weight], before: Iterable[Op], after: Iterable[Op]) -> tuple[Weight, ...]:
    names = ("weight", "bias", "gate_up", "down")
    pairs = [
        (getattr(a.spec, n, None), getattr(b.spec, n, None)) for a, b in zip(before, after, strict=True) for n in names
    ]
    changed = {old: new for old, new in pairs if isinstance(old, Weight) and isinstance(new, Weight)}
    for a, b in zip(before, after, strict=True):
        if isinstance(a.spec, Looped) and isinstance(b.spec, Looped):
            changed |= dict(zip(a.spec.weights, b.spec.weights, strict=True))
    return tuple(changed.get(weight, weight) for weight in weights)


def sides(weight: Weight) -> tuple[int, int, int]:
    """Outputs and inputs of each matrix of a weight, and how many there are: stacked experts have two or one each."""
    shape = weight.shape
    if weight.role is not Role.EXPERT or len(shape) == len(("out", "in")):
        return shape[0], weight.elements // shape[0], 1
    experts, outer, inner = shape
    halves = len(HALVES) if "gate_up" in weight.name else 1
    return outer // halves, inner, experts * halves


def stored(weight: Weight) -> tuple[Stored, ...]:
    """The tensors of a packed weight, in the order in which they are made."""
    assert weight.packed is not None
    outer, inner, copies = sides(weight)
    kind = weight.packed.kind
    return tuple(
        Stored(
            one.name, (Axis(Dim.ELEMENTS, _entries(one, weight.packed, outer, inner)),), one.dtype, copies, one.source
        )
        for one in kind.tensors(weight.packed.double, weight.packed.release)
    )


def tensors_of(weight: Weight, dtype: DType) -> tuple[Stored, ...]:
    """What a weight is stored as: itself in its dtype, or the tensors of a packed one."""
    if weight.packed is None:
        return (Stored(weight.name, weight.dims, dtype, 1, ADAPTERS if weight.tuned else None),)
    return tuple(one._replace(name=f"{weight.name}: {one.name}") for one in stored(weight))


def parameter_of(weight: Weight, dtype: DType) -> tuple[Dims, DType]:
    """What a framework finds as the parameter of a weight kept in `dtype`: itself, or the codes of a packed one (as one
    column, as bitsandbytes keeps them). Where all tensors of a packed one are buffers it has no entries."""
    if weight.packed is None:
        return weight.flat, dtype
    codes = stored(weight)[0]
    count = 0 if weight.packed.kind.buffers else codes.dims[0].size * codes.copies
    return (Axis(Dim.ELEMENTS, count),), codes.dtype


def beside_parameter(weight: Weight, dtype: DType) -> tuple[Stored, ...]:
    """The tensors of a packed weight that are no parameter: scales and the like, or all where they are buffers."""
    found = tensors_of(weight, dtype) if weight.packed is not None else ()
    return found if weight.packed is not None and weight.packed.kind.buffers else found[1:]


def sent_of(weight: Weight, dtype: DType) -> tuple[Stored, ...]:
    """What of a weight is a parameter or a buffer: of a packed one its codes alone, or where all are buffers, all."""
    found = tensors_of(weight, dtype)
    return found if weight.packed is None or weight.packed.kind.buffers else found[:1]


def flattened(weight: Weight, dtype: DType) -> tuple[Stored, ...]:
    """What of a weight is in a flat parameter of FSDP1."""
    found = tensors_of(weight, dtype)
    if weight.packed is None or not weight.packed.kind.buffers:
        return found[:1]
    return tuple(one for one in found if one.name.rpartition(": ")[-1] in FLATTENED.names) or found[:1]


def _entries(part: Part, packing: Packing, outer: int, inner: int) -> int:
    """How many entries a tensor has; every count is rounded up."""
    elements, bits = outer * inner, packing.kind.bits
    groups = outer * -(-inner // (packing.group or inner))
    match part.per:
        case Per.WORD:
            return -(-elements * bits // part.dtype.bits)
        case Per.BLOCK:
            return -(-elements // part.size)
        case Per.NESTED:
            return -(-blocks_of(packing, elements) // part.size)
        case Per.GROUP:
            return groups
        case Per.GROUP_WORD:
            return -(-groups * bits // part.dtype.bits)
        case Per.TILE:
            return -(-outer // part.size) * -(-inner // part.size)
        case Per.INPUT:
            return inner
        case Per.OUTPUT:
            return outer
        case Per.FIXED:
            return part.size


def blocks_of(packing: Packing, elements: int) -> int:
    """How many blocks of that many elements have a scale of their own."""
    size = next(one.size for one in packing.kind.parts if one.per is Per.BLOCK)
    return -(-elements // size)
