"""A rollout engine's memory: its weights, the pool of keys and values, and what an update of its weights takes.

Source: the rows in facts/phases.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.base.sources import Basis, Source
from trainledger.facts.allocator import CUDA
from trainledger.facts.dtypes import DTYPES, FP32, UINT8, DType
from trainledger.facts.megatron import FRAMEWORKS as MEGATRON
from trainledger.facts.phases import ENGINE, EXPORTED, GENERATION, PAGES, ROLLOUT, SYNC
from trainledger.ledger.layout import weights_of
from trainledger.ledger.mega_exported import exported
from trainledger.lines.line import Account, Line
from trainledger.model.kv import Cache, cached, state_of
from trainledger.model.program import Attention, Block, Model, Weight
from trainledger.plan.acting import Engine
from trainledger.plan.schema import Plan

Copies = tuple[tuple[Line, int], ...]
SPREAD = ("zero3", "fsdp1", "fsdp2", "hsdp", "megatron-fsdp")  # strategies under which no rank has a weight whole
NARROW = ("fp8",)  # element types of which embeddings, heads and norms are left out
WIDE = "bf16"


@dataclass(frozen=True, slots=True)
class Rollout:
    """An engine on one rank, as lines with copies: weights, the pool of its cache with its working memory, and what is
    alive while its weights are updated."""

    weights: Copies
    pool: Copies
    update: Copies


def rollout_of(plan: Plan, policy: Plan, engine: Engine, model: Model, usable: int | None) -> Rollout:
    """The engine of a role's plan on a device with these usable bytes (None: not known), fed by the policy's plan."""
    weights = tuple(_weights(plan, model))
    pool = _pool(plan, engine, model, (usable, sum(line.unit * copies for line, copies in weights)))
    return Rollout(weights, pool, tuple(_update(plan, policy, engine, model)))


def cache_of(plan: Plan, engine: Engine, model: Model) -> Cache:
    """The engine's cache: its element type is the weights' unless it is given; narrow weights leave it wide."""
    own = WIDE if plan.precision.weights in NARROW else plan.precision.weights
    return Cache(cached(model), DTYPES[engine.cache_dtype or own], engine.page, plan.parallel.tp)


def _line(account: Account, name: str, size: int, dtype: DType, source: Source) -> Line:
    dims = (Axis(Dim.ELEMENTS, size),)
    unit = CUDA.rounded(dtype.bytes_of(elements(dims)))
    return Line(account, f"{ROLLOUT}: {name}", dims, dtype, unit, Basis.COUNTED, source, role=ROLLOUT)


def _dtype(plan: Plan, weight: Weight, prefix: str) -> DType:
    """Narrow weights are those of the layers' matrices."""
    given = plan.precision.weights
    narrow = given in NARROW and (not prefix or len(weight.dims) == 1)
    return DTYPES[WIDE if narrow else given]


def _weights(plan: Plan, model: Model) -> Iterator[tuple[Line, int]]:
    """Every weight's part on one rank: matrices are split, the rest lies on all."""
    tp = plan.parallel.tp
    for prefix, weight, count in weights_of(model):
        part = -(-weight.elements // tp) if len(weight.dims) > 1 else weight.elements
        line = _line(Account.WEIGHTS, prefix + weight.name, part, _dtype(plan, weight, prefix), ENGINE.source)
        yield replace(line, shards=tp), count


def _pool(plan: Plan, engine: Engine, model: Model, room: tuple[int | None, int]) -> Copies:
    """The pool: of so many tokens, or what the engine's share of the device leaves."""
    cache, (usable, weights) = cache_of(plan, engine, model), room
    found = []
    if engine.overhead:
        found.append((_line(Account.WORKSPACE, "working memory and graphs", engine.overhead, UINT8, ENGINE.source), 1))
    if engine.memory_share is not None and usable is not None:
        left = max(int(engine.memory_share * usable) - weights - (engine.overhead or 0), 0)
        return (*found, _paged(cache, left // (cache.per_token * cache.page)))
    if engine.tokens is not None:
        return (*found, _paged(cache, -(-engine.tokens // cache.page)))
    count = engine.sequences or plan.batch.micro_batch
    size = cache.sequence(plan.batch.sequence) * UINT8.bits // cache.dtype.bits
    name = "keys and values of a sequence, in pages"
    return (*found, (_line(Account.CACHE, name, size, cache.dtype, PAGES.source), count))


def _paged(cache: Cache, pages: int) -> tuple[Line, int]:
    """So many pages of tokens of all layers."""
    each = cache.per_token * UINT8.bits // cache.dtype.bits
    dims = (Axis(Dim.BLOCKS, pages), Axis(Dim.TOKENS, cache.page), Axis(Dim.ELEMENTS, each))
    line = _line(Account.CACHE, "keys and values, in pages", elements(dims), cache.dtype, PAGES.source)
    return replace(line, dims=dims, why=f"room for {pages * cache.page:,} tokens of all sequences"), 1


def _update(plan: Plan, policy: Plan, engine: Engine, model: Model) -> Iterator[tuple[Line, int]]:
    """One weight after the other, or by the bucket: gathered whole where it is spread over ranks, and cast where the
    engine keeps another element type."""
    rows = [(weight.elements, _dtype(plan, weight, prefix)) for prefix, weight, _ in weights_of(model)]
    largest, dtype = max(rows, key=lambda row: row[0])
    kept = DTYPES[policy.precision.weights]
    if policy.stack.framework in MEGATRON:
        name, size = max(exported(policy), key=lambda row: row[1])
        yield _line(Account.SYNC, f"{name}, its parts and what is made of them", size, kept, EXPORTED), 1
    elif policy.parallel.strategy in SPREAD:
        yield _line(Account.SYNC, "the largest weight, gathered", largest, kept, SYNC), 1
    if engine.bucket:
        yield _line(Account.SYNC, "bucket of weights", engine.bucket, UINT8, SYNC), 1
    elif dtype != kept:
        yield _line(Account.SYNC, "the largest weight in the engine's element type", largest, dtype, SYNC), 1


def generated(plan: Plan, model: Model, how: tuple[int, int]) -> Copies:
    """What the policy itself holds as it ends so many sequences of the plan's length: keys and values of every layer,
    of one of them twice, since a token more makes new ones; logits of the last tokens; under ZeRO-3 all weights. `how`:
    the sequences; copies of all keys and values (0: as said)."""
    batch, copies = how
    low = DTYPES[plan.precision.compute]
    tokens = (Axis(Dim.BATCH, batch), Axis(Dim.SEQUENCE, plan.batch.sequence))
    found: list[tuple[Line, int]] = []
    for block in model.blocks:
        spec = next((op.spec for op in block.ops if isinstance(op.spec, Attention)), None)
        if spec is None:
            continue
        for name, width in (("keys", spec.head), ("values", spec.value or spec.head)):
            dims = (*tokens, Axis(Dim.KV_HEADS, spec.kv_heads), Axis(Dim.HEAD_DIM, width))
            found.append(
                (
                    _kept(Account.CACHE, f"{block.name}.*.{name} of generated sequences", dims, low),
                    block.count * max(copies, 1),
                )
            )
    if not copies:
        line, count = found[0]
        found[0] = line, count + 1
    found.extend((line, block.count) for block in model.blocks for line in _states(block, batch, low))
    last = (Axis(Dim.BATCH, batch), Axis(Dim.VOCAB, model.vocab))
    found.append((_kept(Account.LOGITS, "logits of the last tokens", last, FP32), 1))
    if plan.parallel.strategy == "zero3":
        for prefix, weight, count in weights_of(model):
            name = f"{prefix}{weight.name} (whole)"
            found.append((_kept(Account.GATHERED, name, weight.dims, DTYPES[plan.precision.weights]), count))
    return tuple(found)


def _states(block: Block, batch: int, low: DType) -> Iterator[Line]:
    """What linear attention keeps of each sequence: past tokens for its convolution, and matrices of fp32."""
    parts = (("past tokens", low), ("states", FP32))
    for (name, dtype), size in zip(parts, state_of(block), strict=True):
        if not size:
            continue
        dims = (Axis(Dim.BATCH, batch), Axis(Dim.ELEMENTS, size))
        yield _kept(Account.CACHE, f"{block.name}.*.{name} of generated sequences", dims, dtype)


def _kept(account: Account, name: str, dims: Dims, dtype: DType) -> Line:
    unit = CUDA.rounded(dtype.bytes_of(elements(dims)))
    return Line(account, f"generation: {name}", dims, dtype, unit, Basis.COUNTED, GENERATION)
