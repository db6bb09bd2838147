"""A node's RAM over a run: while models load, while steps run, while a checkpoint is written, while logits are kept.

Every part is one of a rank or of the node; a moment adds up its parts. What the operating system, file caches and a
data set that is held in memory take is not counted: `node.used` says it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from trainledger.answer.bands import Band
from trainledger.answer.checkpoint import Checkpoint, largest
from trainledger.answer.node import together
from trainledger.answer.saved import RANK_0, Holds
from trainledger.answer.saved_sizes import dtype_of
from trainledger.base.dims import Dim
from trainledger.base.places import Place
from trainledger.base.sources import Source
from trainledger.facts.checkpoints import EXPORT, OWN_SHARDS
from trainledger.facts.code_read import SERIALISED
from trainledger.facts.dtypes import DTYPES, FP16, FP32, INT64, DType
from trainledger.facts.evaluation import LOOP
from trainledger.facts.host_memory import (
    AUTO_SINCE,
    BITSANDBYTES,
    DIRECT,
    EFFICIENT,
    FRAMEWORKS,
    PROCESS,
    SECOND,
    STAYS,
    VERL,
    WHOLE,
    WORKERS,
    ZERO_EARLIER,
    ZERO_INIT,
    ZERO_SINCE,
    Load,
    Way,
)
from trainledger.facts.names import CHECKPOINT_DTYPES
from trainledger.facts.overheads import Interval
from trainledger.facts.versions import at_least
from trainledger.ledger.rank import Ledger, updates_of
from trainledger.ledger.strategy import fsdp_of
from trainledger.lines.line import Account
from trainledger.model.counts import kinds
from trainledger.model.program import Model, Role
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

LOAD, STEPS, EVALUATION, SAVE = "load", "steps", "evaluation", "save"
BNB_KINDS = ("nf4", "fp4", "int8")


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one tensor, file or process, and how many of them a node holds at once."""

    name: str
    size: Band
    count: int
    source: Source


@dataclass(frozen=True, slots=True)
class HostMoment:
    """What a node's RAM holds at one moment."""

    name: str
    parts: tuple[Part, ...]

    @property
    def band(self) -> Band:
        """All parts together."""
        return Band(
            *(sum(getattr(one.size, end) * one.count for one in self.parts) for end in ("low", "expected", "high"))
        )


def host_moments(plan: Plan, model: Model, ledger: Ledger, written: Checkpoint) -> tuple[HostMoment, ...]:
    """Every moment of the node that this plan's fullest rank runs on, in order."""
    ranks = together(plan)
    always = (_interval("process of a rank", PROCESS, ranks),)
    steps = (*always, *_kept(ledger, ranks), *_paged(plan, ledger, ranks), *_workers(plan, ranks))
    moments = [
        HostMoment(LOAD, (*always, *_loading(plan, model, ranks))),
        HostMoment(STEPS, steps),
        HostMoment(SAVE, (*steps, *_saving(plan, written, ranks))),
    ]
    if plan.evaluation is not None and not plan.evaluation.prediction_loss_only:
        moments.insert(-1, HostMoment(EVALUATION, (*steps, *_logits(plan, model, ranks))))
    return tuple(moments)


def fullest(moments: tuple[HostMoment, ...]) -> HostMoment:
    """The first of the largest."""
    return max(moments, key=lambda one: one.band.expected)


def way_of(plan: Plan) -> Way:
    """How the plan's framework loads the model."""
    own = FRAMEWORKS.get(plan.stack.framework)
    if own is not None:
        return own
    options, parallel = plan.stack.options, plan.parallel
    if plan.stack.framework in OWN_SHARDS and fsdp_of(plan):
        return WHOLE if plan.keys().get("tie_word_embeddings") else VERL
    if plan.quantization is not None and plan.quantization.kind in BNB_KINDS:
        return BITSANDBYTES
    if options.get("device_map"):
        return DIRECT
    if fsdp_of(plan) and parallel.options.get("cpu_ram_efficient_loading"):
        return EFFICIENT
    if parallel.strategy == "zero3" and parallel.options.get("zero_init") is not False:
        return ZERO_INIT if at_least(plan.stack.versions.get("transformers"), ZERO_SINCE) else ZERO_EARLIER
    return WHOLE


def loaded_bytes(plan: Plan, model: Model) -> int:
    """Bytes of the whole model as it is read."""
    return sum(
        (weight.packed.loaded if weight.packed else dtype_of(plan, weight)).bytes_of(weight.elements) * count
        for weight, count in kinds(model)
    )


def _read(plan: Plan, model: Model, way: Way) -> Band:
    """Bytes of one whole copy while it is read, without what stays in mapped files. Where FSDP keeps shards wider than
    products read, the model may come in the checkpoint's own dtype, or in that of products, and be raised only once it
    is sharded. The high end takes no file to be mapped."""
    kept, weights = loaded_bytes(plan, model), DTYPES[plan.precision.weights]
    named = _file_dtype(plan)
    raised = bool(fsdp_of(plan)) and plan.precision.compute in CHECKPOINT_DTYPES.values()
    dtype = (named or DTYPES[plan.precision.compute]) if raised else weights
    low = expected = kept
    if dtype.bits < weights.bits:
        low = sum(dtype.bytes_of(weight.elements) * count for weight, count in kinds(model))
        own = named is not None and at_least(plan.stack.versions.get("transformers"), AUTO_SINCE)
        expected = low if own else kept
    uncast = way.load is Load.ZERO or plan.stack.framework in STAYS.always
    if not _maps(plan, way) or not (uncast or named in (None, dtype)):
        return Band(low, expected, kept)
    made = _stacked(plan, model, way)
    known = uncast or (named == dtype and expected == low)
    return Band(made, made if known else expected, kept)


def _file_dtype(plan: Plan) -> DType | None:
    """The dtype that the model's configuration names for its files."""
    keys = plan.keys()
    named = CHECKPOINT_DTYPES.get(str(keys.get("dtype") or keys.get("torch_dtype")).removeprefix("torch."))
    return DTYPES[named] if named else None


def _maps(plan: Plan, way: Way) -> bool:
    """Whether parameters stay in the file that they are read from, if nothing is cast."""
    if way in (EFFICIENT, ZERO_INIT) or plan.stack.framework in STAYS.always:
        return True
    low = plan.stack.options.get("low_cpu_mem_usage") is True
    return way in (WHOLE, VERL) and (low or at_least(plan.stack.versions.get("transformers"), STAYS.since))


def _stacked(plan: Plan, model: Model, way: Way) -> int:
    """Bytes of experts that are stacked while they are read, which no file holds so."""
    if way.load is Load.ZERO or not at_least(plan.stack.versions.get("transformers"), STAYS.stacks_since):
        return 0
    return sum(
        dtype_of(plan, weight).bytes_of(weight.elements) * count
        for weight, count in kinds(model)
        if weight.role is Role.EXPERT and weight.dims[0].dim is Dim.EXPERTS
    )


def copies_of(load: Load, ranks: int) -> int:
    """How many whole copies of the model a node holds while it loads."""
    return {Load.ALL: ranks, Load.FIRST: 1, Load.ZERO: 1, Load.MESH: 1}.get(load, 0)


def _loading(plan: Plan, model: Model, ranks: int) -> Iterator[Part]:
    way = way_of(plan)
    size = _read(plan, model, way)
    copies = copies_of(way.load, ranks)
    if copies:
        told = "; without what stays in mapped files" if size.low < size.high and _maps(plan, way) else ""
        yield Part(f"model as it is read: {way.load.value}{told}", size, copies, way.source)
    elif way.load is Load.MAPPED:
        dtype = max((dtype_of(plan, weight).bytes_of(weight.elements) for weight, _ in kinds(model)), default=0)
        yield _counted(f"largest tensor on its way: {way.load.value}", dtype, ranks, way.source)
    low = plan.stack.options.get("low_cpu_mem_usage")
    older = not at_least(plan.stack.versions.get("transformers"), SECOND.until)
    if way is WHOLE and older and low is not True and plan.stack.versions.get("transformers"):
        beside = Band(0, 0, min(size.high, SECOND.file_bytes))
        yield Part("file of weights beside the model (mapped where it is in safetensors)", beside, ranks, SECOND.source)


def _kept(ledger: Ledger, ranks: int) -> Iterator[Part]:
    """What the ledger's lines in the host's memory add up to on one rank, account by account."""
    sizes: dict[Account, int] = {}
    sources: dict[Account, Source] = {}
    for line, copies in ledger.host:
        if line.place is Place.HOST and line.unit:
            sizes[line.account] = sizes.get(line.account, 0) + line.unit * copies
            sources.setdefault(line.account, line.source)
    for account, size in sizes.items():
        yield _counted(f"{account.value.replace('_', ' ')} of a rank", size, ranks, sources[account])


def _paged(plan: Plan, ledger: Ledger, ranks: int) -> Iterator[Part]:
    """Optimizer states in managed memory: on the device while there is room, else all of them here."""
    if ledger.paged:
        source = updates_of(plan).row.source
        yield Part("paged optimizer states, where the device has no room", Band(0, 0, ledger.paged), ranks, source)


def _workers(plan: Plan, ranks: int) -> Iterator[Part]:
    options, batch = plan.stack.options, plan.batch
    count = int(options.get("dataloader_num_workers") or 0)
    tensors = len(options.get("batch_tensors") or ("ids", "labels", "mask"))
    size = INT64.bytes_of(batch.micro_batch * batch.sequence) * tensors
    if count:
        ahead = int(options.get("dataloader_prefetch_factor") or WORKERS.prefetch)
        yield _counted("batches that data loaders have ready", size, count * ahead * ranks, WORKERS.source)
        yield _interval("data loader's worker", WORKERS.own, count * ranks)


def _logits(plan: Plan, model: Model, ranks: int) -> Iterator[Part]:
    """Logits of the whole set on every rank, as arrays of fp32, or of fp16 as they are; where they come in parts, they
    are joined each time."""
    how, batch = plan.evaluation, plan.batch
    if how is None:
        return
    tokens = 1 if model.head.pooled else how.sequence or batch.sequence
    rows = (how.micro_batch or batch.micro_batch) * how.batches * degrees(plan).dp
    half = plan.precision.weights == FP16.name and plan.precision.compute == FP16.name
    size = (FP16 if half and not plan.precision.autocast else FP32).bytes_of(rows * tokens * model.vocab)
    yield _counted("logits of the set, gathered on every rank", size, ranks, LOOP.source)
    if how.accumulation and how.accumulation < how.batches:
        yield _counted("the same while they are joined", size, ranks, LOOP.source)


def _saving(plan: Plan, written: Checkpoint, ranks: int) -> Iterator[Part]:
    """What is gathered on the host, or staged there, before it is written: of several roles' models one at a time."""
    save, source = plan.save, written.format.source
    sums = Counter[str]()
    for one in written.files:
        sums[one.role] += one.total if one.by == RANK_0 and one.what is Holds.OPTIMIZER else 0
    states = max(sums.values(), default=0)
    if save is not None and save.asynchronous:
        yield _counted("copy of what a rank has of it, staged", written.staged, ranks, source)
    elif written.format.serialised or (written.format.together and (fsdp_of(plan) or plan.adapter)):
        size = written.weights_only + (states if fsdp_of(plan) or written.format.serialised else 0)
        yield _counted("checkpoint as rank 0 has it before it is written", size, 1, source)
    elif _gathered(plan, written):
        yield _counted("whole state dict, gathered on rank 0", max(written.weights_only, states), 1, source)
    else:
        files = [one for one in written.files if one.safetensors]
        if files:
            yield _counted("file of weights as it is written", largest(files), 1, SERIALISED)


def _gathered(plan: Plan, written: Checkpoint) -> bool:
    """Whether whole tensors come together in rank 0's memory: of shards, that is."""
    sharded = bool(fsdp_of(plan)) or (plan.parallel.strategy == "zero3" and bool(plan.parallel.options.get(EXPORT)))
    return sharded and any(one.by == RANK_0 for one in written.files)


def _counted(name: str, size: int, count: int, source: Source) -> Part:
    return Part(name, Band(size, size, size), count, source)


def _interval(name: str, found: Interval, count: int) -> Part:
    return Part(name, Band(round(found.low), round(found.expected), round(found.high)), count, found.source)
