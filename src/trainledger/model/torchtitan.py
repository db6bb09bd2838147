"""torchtitan's Transformer of a plan, written from the program of its Transformers class.

The layers' linears and feed-forward are the same. Llama's queries and keys turn as complex numbers of fp32, Qwen3's by
cosines and sines of one fp32 table; keys and values are repeated for the query heads after that, in older versions.
Sources: torchtitan/models/llama/model.py (2024-03 to 2025-04), models/llama3/model/model.py (2025-04 to 2026-02),
experiments/qwen3/model/model.py (2025-09), models/norms.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.base.problems import InputError, Problem
from trainledger.facts.dtypes import DTYPES, FP32
from trainledger.facts.float8 import LOW, NO_COMPILE, RECIPES
from trainledger.facts.torchtitan import MODELS, NAME, ROWS, Change, holds
from trainledger.model.program import (
    Attention,
    Block,
    Buffer,
    ClampedExperts,
    Experts,
    GroupRouter,
    Join,
    Linear,
    Low,
    Model,
    Norm,
    NormKind,
    Op,
    Pairs,
    Repeat,
    Role,
    Rope,
    Router,
    Scales,
    Turn,
    View,
    Weight,
)
from trainledger.model.torchtitan_qkv import fused
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

LOGITS = "router_logits"
WAVES = ("cos", "sin")
LATENT = ("deepseek_v3",)  # families whose attention goes through latents
GROUPED = ("llama", "qwen3", "qwen3_moe")  # families with attention over grouped heads
SUNK = ("gpt_oss",)  # families whose attention has sinks, and whose experts have biases
COMPLEX = ("llama", *LATENT)  # families whose table is of complex numbers


@dataclass(frozen=True, slots=True)
class Style:
    """How that version writes a family: its norms, how queries and keys turn, whether heads are repeated; how linear
    layers inside blocks cast to 8 bits (None: not); whether routers over groups divide scores by their sum, where told
    to."""

    norm: NormKind
    join: Join
    repeats: bool
    low: Low | None
    normalises: bool = False


def written(model: Model, plan: Plan) -> Model:
    """The model as torchtitan has it. Raises InputError for families whose module is another one."""
    if model.family not in MODELS:
        known = ", ".join(MODELS)
        found = f"found {model.family!r} with {NAME}"
        raise InputError([Problem("model.model_type", found, f"{known} can be estimated so far")])
    version = plan.stack.versions.get(NAME, "")
    routed = any(isinstance(op.spec, Experts | ClampedExperts) for block in model.blocks for op in block.ops)
    if routed and not _knows(model, version):
        since = ROWS[Change.SCATTERS if model.family in SUNK else Change.PERMUTES].since
        found, allowed = (
            f"found experts of {model.family} with {NAME} {version}",
            f"since {since} they can be estimated",
        )
        raise InputError([Problem("stack.versions.torchtitan", found, allowed)])
    late = holds(Change.UNSORTS, version) or holds(Change.SCATTERS, version)
    style = Style(
        norm=NormKind.RMS_NATIVE if holds(Change.NATIVE_NORM, version) else NormKind.RMS,
        join=Join.COMPLEX if model.family in COMPLEX else Join.CACHE,
        repeats=not holds(Change.GROUPED, version),
        low=_low(plan),
        normalises=late,
    )
    blocks = tuple(rewritten(block, style) for block in model.blocks)
    if holds(Change.FUSED_QKV, version) and model.family in GROUPED and degrees(plan).tp == 1:
        blocks = tuple(fused(block) for block in blocks)
    head = replace(model.head, ops=tuple(_normed(op, style) for op in model.head.ops))
    turned = model.rotary.dim if model.rotary else 0
    table = Buffer("freqs_cis" if style.join is Join.COMPLEX else "rope_cache", _table(turned, plan, style), FP32)
    handed = replace(model.handed, numbered=False)
    return replace(model, blocks=blocks, head=head, rotary=None, buffers=(table,), handed=handed)


def _knows(model: Model, version: str) -> bool:
    copied = holds(Change.PERMUTES, version) or holds(Change.UNSORTS, version)
    return holds(Change.SCATTERS, version) or (copied and model.family not in SUNK)


def _low(plan: Plan) -> Low | None:
    """How torchao's converters cast every linear layer but the head."""
    row = LOW.get(plan.precision.compute)
    if row is None:
        return None
    given = plan.precision.fp8
    recipe = given.recipe if given and given.recipe in RECIPES else row.recipe
    prototype = bool(given and given.kernels == NO_COMPILE.kernels)
    scales = Scales(RECIPES[recipe])
    return Low(
        dtype=DTYPES[plan.precision.compute],
        scales=scales,
        gathered=bool(given and given.all_gather),
        again=not row.keeps
        and (scales is not Scales.TENSOR or prototype or bool(given and given.force_recompute_weight_in_bwd)),
        early=row.keeps or (prototype and plan.stack.recompute.kind == "none"),
        kernels=prototype or row.kernels,
        listed=row.listed,
    )


def _table(turned: int, plan: Plan, style: Style) -> Dims:
    """One complex number for each pair, or cosine and sine of every element, of every position."""
    width = turned if style.join is Join.COMPLEX else turned * len(WAVES)
    return (Axis(Dim.SEQUENCE, plan.batch.sequence), Axis(Dim.ROPE_DIM, width))


def rewritten(block: Block, style: Style) -> Block:
    """A layer of the Transformers class as one of this style."""
    ops = tuple(one for op in block.ops for one in _ops(op, style))
    stacks = [op.spec for op in block.ops if isinstance(op.spec, Experts)]
    old = [op.spec.weight for op in block.ops if isinstance(op.spec, Linear)]
    new = [op.spec.weight for op in ops if isinstance(op.spec, Linear)]
    changed = dict(zip(old, new, strict=True))
    weights = (changed.get(one, one) for one in block.weights)
    return replace(block, ops=ops, weights=tuple(part for one in weights for part in _parts(one, stacks)))


def _parts(weight: Weight, stacks: list[Experts]) -> Iterator[Weight]:
    """The weights that stand in a weight's place: of gate and up by themselves."""
    if any(weight == stack.gate_up for stack in stacks):
        yield from _halves(weight)
    else:
        yield replace(weight, dtype=None) if weight.role is Role.ROUTER else weight


def _halves(weight: Weight) -> tuple[Weight, Weight]:
    count, both, *rest = weight.dims
    prefix = weight.name.removesuffix("gate_up_proj")
    half = (count, Axis(both.dim, both.size // len(("w1", "w3"))), *rest)
    return replace(weight, name=f"{prefix}w1", dims=half), replace(weight, name=f"{prefix}w3", dims=half)


def _normed(op: Op, style: Style) -> Op:
    return replace(op, spec=replace(op.spec, kind=style.norm)) if isinstance(op.spec, Norm) else op


def _ops(op: Op, style: Style) -> Iterator[Op]:
    spec = op.spec
    if isinstance(spec, Rope):
        yield replace(op, spec=replace(spec, join=style.join))
        if style.repeats:
            yield from (Op("self_attn", Repeat(op.dims[0].size), (one,), (one,), op.dims) for one in ("k", "v"))
    elif isinstance(spec, Pairs) and spec.turn is Turn.HALVES:  # by one table of fp32
        width = op.dims[-1].size if op.dims else 0
        yield replace(op, spec=Rope(width, width, join=style.join))
    elif isinstance(spec, Attention):
        keys = spec.heads if style.repeats else spec.kv_heads
        yield replace(op, spec=replace(spec, kv_heads=keys, window=0, head_first=False))
    elif isinstance(spec, View):  # heads stand behind tokens until attention is called
        yield replace(op, spec=View())
    elif isinstance(spec, GroupRouter):
        normalise = style.normalises and spec.normalise
        yield replace(op, spec=Router(replace(spec.weight, dtype=None), spec.top_k, normalise, True))
    elif isinstance(spec, ClampedExperts):  # no layer names the weights of attention
        yield replace(op, drop=tuple(name for name in op.drop if name in op.ins or name == LOGITS))
    elif isinstance(spec, Experts):
        gate, up = _halves(spec.gate_up)
        yield replace(op, spec=replace(spec, gate_up=gate, up=up))
    elif isinstance(spec, Linear) and style.low is not None:
        weight = replace(spec.weight, gathered=style.low.dtype if style.low.gathered else None)
        yield replace(op, spec=replace(spec, weight=weight, low=style.low))
    else:
        yield _normed(op, style)
