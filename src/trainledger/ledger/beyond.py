"""Moments after the steps: evaluation without gradients, generation with a cache, a checkpoint's gathered weights.

What the steps left lies there all the while: states, and what the caller's names keep of the last micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.base.sources import Source
from trainledger.facts.checkpoints import EXPORT, MERGED
from trainledger.facts.dtypes import FP32, INT64, DType
from trainledger.facts.evaluation import CACHING, GATHERED, GENERATION, LOOP
from trainledger.facts.litgpt import NAME as LITGPT
from trainledger.facts.scope import OWN_MODELS
from trainledger.facts.trainer import TRAINER_BATCH
from trainledger.facts.versions import at_least
from trainledger.ledger.layout import Layout, weights_of
from trainledger.ledger.layout_zero3 import ZeroParts
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.opening import Job
from trainledger.ledger.rows import Rows, rows_of
from trainledger.lines.line import Account
from trainledger.lines.moments import EVALUATION, FORWARD, SAVE, in_part, part_of
from trainledger.lines.stream import Events, Segment
from trainledger.model.evaluated import evaluated, keys_of
from trainledger.model.prompts import virtual_tokens
from trainledger.plan.beyond import Evaluation, Generation
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

MOMENTS = (EVALUATION, SAVE)
WHOLE = ("fsdp-full", "safetensors", *MERGED)  # formats for which shards are gathered


def in_steps(moment: str) -> bool:
    """Whether a moment is one of a whole optimizer step."""
    return moment != "init" and part_of(moment) not in MOMENTS


@dataclass(frozen=True, slots=True)
class Beyond:
    """What follows the steps: an evaluation, and what its batches say of their tokens; the data-parallel ranks whose
    logits come together; whether the model makes a cache while it is evaluated; whether a checkpoint gathers whole
    weights, by unit of layers or one by one."""

    evaluation: Evaluation | None
    rows: Rows
    ranks: int
    caches: bool
    gathers: bool
    by_unit: bool


def beyond_of(plan: Plan) -> Beyond:
    """What follows the steps of a plan."""
    options, version = plan.parallel.options, plan.stack.versions.get("transformers")
    trainer = TRAINER_BATCH.package in plan.stack.versions
    off = plan.stack.framework in OWN_MODELS or plan.stack.options.get("use_cache") is False
    caches = not off and not (trainer and at_least(version, CACHING.until))
    first = plan.parallel.strategy == "fsdp1" or options.get("fsdp_version") == 1
    word = str(options.get("state_dict_type") or ("FULL" if first else "")).upper()
    sharded = plan.parallel.strategy in ("fsdp1", "fsdp2", "hsdp")
    whole = (sharded and "FULL" in word) or (plan.parallel.strategy == "zero3" and bool(options.get(EXPORT)))
    whole |= sharded and _recipe(plan)
    named = plan.save.format if plan.save else None
    gathers = plan.save is not None and (whole if named is None else sharded and named in WHOLE)
    return Beyond(plan.evaluation, _rows(plan), degrees(plan).dp, caches, gathers, first)


def _recipe(plan: Plan) -> bool:
    """Whether rank 0 gathers all weights for a file of torchtune's or LitGPT's; of LoRA LitGPT gathers its factors."""
    alone = plan.stack.framework == LITGPT and plan.adapter is not None
    meanwhile = plan.save is not None and plan.save.asynchronous
    return plan.stack.framework in MERGED and not alone and not meanwhile


def _rows(plan: Plan) -> Rows:
    """What an evaluation's batches say of their tokens: several rows may hold padding where a lone one does not."""
    given = plan.evaluation.micro_batch if plan.evaluation else None
    batch = plan.batch.model_copy(update={"micro_batch": given or plan.batch.micro_batch})
    return rows_of(plan.model_copy(update={"batch": batch}))


def segments_beyond(layout: Layout, given: Beyond) -> list[Segment]:
    """Segments of everything after the steps, in order."""
    found: list[Segment] = []
    if given.evaluation is not None:
        found += _Pass(layout, given, given.evaluation).segments()
        if given.evaluation.generation is not None:
            found += _generation(layout, given.evaluation.generation)
    if given.gathers:
        found += _gathering(layout, given.by_unit)
    return found


class _Pass:
    """One forward of an evaluation, and what is kept of those before."""

    def __init__(self, layout: Layout, given: Beyond, how: Evaluation) -> None:
        setting = layout.job.run.setting
        batch, sequence = how.micro_batch or setting.batch, how.sequence
        self.layout, self.given, self.how = layout, given, how
        job = evaluating(layout.job, batch, sequence)
        self.job = replace(job, run=replace(job.run, setting=replace(job.run.setting, rows=given.rows)))
        self.book = self.job.book

    def segments(self) -> list[Segment]:
        """Logits of the forwards before, the forward, and how its own are joined to them."""
        ahead = [one._replace(moment=in_part(EVALUATION, one.moment)) for one in forward_of(self.layout, self.job)]
        caches = self._caches()
        before, joined, done = self._kept()
        mine = [*caches, *self._inputs()]
        start = Segment(in_part(EVALUATION, FORWARD), (*before, *(line + 1 for line in mine)))
        left = tuple(-line - 1 for line in (*left_by(self.layout, ahead), *mine))
        return [start, *ahead, Segment(f"{EVALUATION}: logits", (*joined, *left, *done))]

    def _inputs(self) -> list[int]:
        """The batch's own tensors of tokens."""
        setting = self.job.run.setting
        dims = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence - virtual_tokens(self.job.model)))
        line = self.book.tensor(Account.INPUTS, "token ids, labels or mask, evaluated", dims, INT64, LOOP.source)
        return [line] * self.job.run.batch_tensors

    def _caches(self) -> list[int]:
        """Lines of keys and values that the model's outputs hold of every layer, each as often as there are layers."""
        if not self.given.caches:
            return []
        setting = self.job.run.setting
        return cache_lines(self.job, setting.batch, setting.sequence, CACHING.source)

    def _kept(self) -> tuple[Events, Events, Events]:
        """Births before the forward, while its logits are joined, and deaths once they are."""
        how, run = self.how, self.job.run
        if how.prediction_loss_only:
            return (), (), ()
        count = min(how.batches, how.accumulation or how.batches)
        raised = run.trainer and run.setting.autocast is not None
        dtype = FP32 if raised else run.setting.weights
        each = run.setting.batch * self.given.ranks
        gathered = self._logits("logits gathered from all ranks", each, dtype) if self.given.ranks > 1 else None
        events: list[int] = [gathered + 1] if gathered is not None else []
        own = [-gathered - 1] if gathered is not None else []
        if count == 1:
            return (), tuple(events), tuple(own)
        older = self._logits(f"logits of {count - 1:,} forwards", each * (count - 1), dtype)
        newer = self._logits(f"logits of {count:,} forwards, joined", each * count, dtype)
        return (older + 1,), (*events, newer + 1), (-older - 1, *own, -newer - 1)

    def _logits(self, name: str, rows: int, dtype: DType) -> int:
        setting, model = self.job.run.setting, self.job.model
        tokens = () if model.head.pooled else (Axis(Dim.SEQUENCE, setting.sequence),)
        dims = (Axis(Dim.BATCH, rows), *tokens, Axis(Dim.VOCAB, model.vocab))
        return self.book.tensor(Account.LOGITS, name, dims, dtype, LOOP.source)


def evaluating(job: Job, batch: int, sequence: int | None) -> Job:
    """The job of a forward without gradients, of so many sequences and tokens (None: as in training)."""
    setting = job.run.setting
    tokens = setting.sequence if sequence is None else sequence + virtual_tokens(job.model)
    run = replace(
        job.run, setting=replace(setting, batch=batch, sequence=tokens), recompute="none", modules=(), every=1,
        accumulation=1, software=job.run.software.quiet,
    )  # fmt: skip
    return replace(job, model=evaluated(job.model), run=run, trained=lambda weight: False)


def forward_of(layout: Layout, job: Job) -> list[Segment]:
    """Forward and loss of a job under the layout's strategy."""
    own, layout.job = (layout.job, layout.schedule), job
    layout.schedule = replace(layout.schedule, count=1)
    try:
        (micro,) = layout.micros(Leaves(True, job.run.gradients, {}))(True)
    finally:
        layout.job, layout.schedule = own
    return list(micro.forward)


def left_by(layout: Layout, segments: Sequence[Segment]) -> list[int]:
    """Lines that a pass leaves alive, each as often as it does, and that nothing holds once it is over. ZeRO-3's
    coordinator lets go of what it keeps gathered by itself, in a later pass."""
    lines, kept = layout.job.book.lines, isinstance(layout, ZeroParts)
    counts: dict[int, int] = {}
    for _, events, repeat, _ in segments:
        for event in events:
            if event:
                counts[abs(event) - 1] = counts.get(abs(event) - 1, 0) + (repeat if event > 0 else -repeat)
    own = [line for line in counts if not (kept and lines[line].account is Account.GATHERED)]
    return [line for line in own for _ in range(counts[line])]


def cache_lines(job: Job, batch: int, tokens: int, source: Source) -> list[int]:
    """Lines of every layer's keys and values for so many sequences and tokens, each as often as there are layers."""
    dtype = job.run.setting.autocast or job.run.setting.weights
    found: list[int] = []
    for one in keys_of(job.model):
        kept = min(tokens, one.window) if one.window else tokens
        for name, width in (("keys", one.keys), ("values", one.values)):
            dims: Dims = (Axis(Dim.BATCH, batch), Axis(Dim.SEQUENCE, kept), Axis(Dim.COLUMNS, width))
            line = job.book.tensor(Account.ACTIVATIONS, f"{name} of a layer, {kept:,} tokens", dims, dtype, source)
            found += [line] * one.layers
    return found


def _generation(layout: Layout, given: Generation) -> Iterator[Segment]:
    """The prompt's forward, then the cache at its longest: while a layer's is joined anew, the older one is there."""
    moment = f"{EVALUATION}: generation"
    job = evaluating(layout.job, given.batch, given.prompt)
    most = given.prompt + given.tokens
    first = cache_lines(job, given.batch, most if given.static else given.prompt, GENERATION)
    passes = [one if one.moment == FORWARD else _gathered(job, one) for one in forward_of(layout, job)]
    ahead = [one._replace(moment=moment) for one in passes]
    left = tuple(-line - 1 for line in left_by(layout, ahead))
    yield Segment(moment, tuple(line + 1 for line in first))
    yield from ahead
    yield Segment(moment, left)
    dims = (Axis(Dim.BATCH, given.batch), Axis(Dim.VOCAB, job.model.vocab))
    logits = job.book.tensor(Account.LOGITS, "logits of the last token", dims, FP32, GENERATION)
    gone = tuple(-line - 1 for line in first)
    if given.static:
        yield Segment(moment, (logits + 1, -logits - 1, *gone))
        return
    last = cache_lines(job, given.batch, most, GENERATION)
    widest = max(last, key=lambda line: job.book.lines[line].unit, default=None)
    again = () if widest is None else (widest + 1, -widest - 1)
    yield Segment(moment, gone)
    yield Segment(
        moment, (*(line + 1 for line in last), logits + 1, *again, -logits - 1, *(-line - 1 for line in last))
    )


def _gathered(job: Job, segment: Segment) -> Segment:
    """What the head gathers and lets go of; of its logits only those of the last token are made, elsewhere."""
    lines = job.book.lines
    events = (event for event in segment.events if event and lines[abs(event) - 1].account is Account.GATHERED)
    return segment._replace(events=tuple(events))


def _gathering(layout: Layout, by_unit: bool) -> Iterator[Segment]:
    """The largest that is whole at once while weights leave for the host: a unit's, or one weight."""
    sizes: dict[str, list[tuple[int, int]]] = {}
    for prefix, weight, _ in weights_of(layout.job.model):
        line = layout.job.book.tensor(
            Account.GATHERED, f"{prefix}{weight.name}, whole to be saved", weight.dims, layout.stored(weight), GATHERED
        )
        unit = prefix if by_unit else f"{prefix}{weight.name}"
        sizes.setdefault(unit, []).append((line, layout.job.book.lines[line].unit))
    lines = max(sizes.values(), key=lambda held: sum(size for _, size in held), default=[])
    events = (*(line + 1 for line, _ in lines), *(-line - 1 for line, _ in lines))
    yield Segment(SAVE, events)
