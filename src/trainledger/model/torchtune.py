"""torchtune's TransformerDecoder of a plan, written from the program of its Transformers class.

The layers' linears, norms and feed-forward are the same; queries and keys turn in pairs of neighbours in fp32, keys and
values are repeated for the query heads after that, and the rotary table is a buffer. Of a quantised base the layers'
linears are packed, at first only those with an adapter.
Sources: torchtune/modules/{transformer,attention,position_embeddings}.py, models/llama2/_component_builders.py
(2024-11).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError, Problem
from trainledger.facts.dtypes import FP32
from trainledger.facts.torchtune import MODELS, NAME, QUANT_KIND, Early, early
from trainledger.model.adapted import Method, adapted, method_of
from trainledger.model.program import (
    Attention,
    Block,
    Buffer,
    Join,
    Linear,
    Model,
    Op,
    Packing,
    Repeat,
    Rope,
    Weight,
)
from trainledger.model.quantised import packing_of
from trainledger.plan.schema import Plan

COS_SIN = Axis(Dim.ELEMENTS, len(("cos", "sin")))


def written(model: Model, plan: Plan) -> Model:
    """The model as torchtune has it. Raises InputError for families whose module is another one."""
    if model.family not in MODELS:
        known = ", ".join(MODELS)
        found = f"found {model.family!r} with torchtune"
        raise InputError([Problem("model.model_type", found, f"{known} can be estimated so far")])
    method = method_of(plan.adapter, {}) if plan.adapter else None
    packing = packing_of(plan)
    packing = replace(packing, kind=QUANT_KIND) if packing else None
    lone = None if not early(Early.PARTLY, plan.stack.versions.get(NAME, "")) else method
    blocks = tuple(_block(block, lone, packing) for block in model.blocks)
    turned = model.rotary.dim if model.rotary else 0
    positions = plan.keys().get("max_position_embeddings") or plan.batch.sequence
    handed = replace(model.handed, numbered=False)
    made = replace(model, blocks=blocks, rotary=None, buffers=tuple(_buffers(turned, positions)), handed=handed)
    return adapted(made, method) if method else made


def _buffers(turned: int, positions: int) -> Iterator[Buffer]:
    """One module, shared by the layers, keeps the table of every position."""
    half = Axis(Dim.ROPE_DIM, turned // COS_SIN.size)
    yield Buffer("pos_embeddings.theta", (half,), FP32)
    yield Buffer("pos_embeddings.cache", (Axis(Dim.SEQUENCE, positions), half, COS_SIN), FP32)


def _block(block: Block, lone: Method | None, packing: Packing | None) -> Block:
    """A layer; `lone`: the adapter without which a linear layer is not packed."""
    ops = tuple(one for op in block.ops for one in _ops(op, block, lone, packing))
    old = [op.spec.weight for op in block.ops if isinstance(op.spec, Linear)]
    new = [op.spec.weight for op in ops if isinstance(op.spec, Linear)]
    changed: dict[Weight, Weight] = dict(zip(old, new, strict=True))
    return replace(block, ops=ops, weights=tuple(changed.get(one, one) for one in block.weights))


def _ops(op: Op, block: Block, lone: Method | None, packing: Packing | None) -> Iterator[Op]:
    spec = op.spec
    if isinstance(spec, Rope):
        yield replace(op, spec=replace(spec, join=Join.PAIRS))
        yield from (Op("self_attn", Repeat(op.dims[0].size), (one,), (one,), op.dims) for one in ("k", "v"))
    elif isinstance(spec, Attention):
        yield replace(op, spec=replace(spec, kv_heads=spec.heads, window=0))
    elif isinstance(spec, Linear) and packing and (not lone or lone.of(f"{block.name}.0.{op.name}", spec).adapted):
        yield replace(op, spec=replace(spec, weight=replace(spec.weight, packed=packing)))
    else:
        yield op
