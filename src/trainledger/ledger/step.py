"""A run as a stream: building, then steps of forward, loss, backward, clip and optimizer, until they repeat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim, elements
from trainledger.base.sources import Basis, Source
from trainledger.facts.data_parallel import DDP, SCALER
from trainledger.facts.dtypes import FP32, INT64, UINT8, DType
from trainledger.facts.kernels import CUBLAS
from trainledger.facts.optimizer_bytes import StateOptions
from trainledger.facts.optimizer_kinds import Optimizer, Scope
from trainledger.ledger.book import ACCUMULATE, MODELS
from trainledger.ledger.buckets import bucket_line
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import Job, Micro, micro
from trainledger.ledger.remainders import Fresh, bytes_of, remainder_line
from trainledger.ledger.run import Run
from trainledger.ledger.updates import Parameter, Runs, births, clip_events, deaths, one_by_one, state_lines, whole_step
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Segment, Shapes, water
from trainledger.model.program import Linear, Model, Role, Weight

STEPS = ("step 1", "step 2")
INIT, CLIP, OPTIMIZER = "init", "clip", "optimizer"
FREQUENCIES = ("inv_freq", "original_inv_freq")  # of as many rotary dims as there are pairs
RECIPE = Source("Mixed Precision Training", "arXiv:1710.03740, section 3.1", "2017-10")


@dataclass(frozen=True, slots=True)
class Updates:
    """The optimizer of a run: its row, its implementation's name, options of its states, whether it clips."""

    row: Optimizer
    implementation: str | None
    how: StateOptions
    clips: bool


def weights_of(model: Model) -> Iterator[tuple[str, Weight, int]]:
    """Every parameter in the order in which it is built: prefix of its line's name, weight, copies."""
    for weight in model.embeddings:
        yield "", weight, 1
    for block in model.blocks:
        for weight in block.weights:
            yield f"{block.name}.*.", weight, block.count
    for weight in model.head.weights:
        if not weight.tied:
            yield "", weight, 1


def shared_weights(model: Model) -> frozenset[Weight]:
    """Weights that the head reads again (tied embeddings)."""
    own = set(model.embeddings)
    return frozenset(
        op.spec.weight for op in model.head.ops if isinstance(op.spec, Linear) and op.spec.weight in own
    )


@dataclass(frozen=True, slots=True)
class Extras:
    """What lies beside the model: workspace bytes of one thread's matrix products, dtype of master weights and of a
    second gradient buffer (None: there is none), whether gradients are reduced in buckets (of `bucket_cap` bytes; 0: the default), and as views of them,
    whether the loss is scaled, and whether the optimizer steps as each gradient appears."""

    workspace: int
    master: DType | None = None
    main_gradients: DType | None = None
    buckets: bool = False
    bucket_views: bool = False
    bucket_cap: int = 0
    scaler: bool = False
    in_backward: bool = False

    @property
    def passing(self) -> bool:
        """Whether no gradient stays: a bucket or the optimizer takes each at once."""
        return self.bucket_views or self.in_backward


class _Steps:
    """Lines and segments of the run as they are put together."""

    __slots__ = (
        "ends",
        "extras",
        "gradients",
        "job",
        "parameters",
        "segments",
        "shapes",
        "states",
        "temporaries",
        "updates",
        "work",
    )  # fmt: skip

    def __init__(self, job: Job, updates: Updates, extras: Extras) -> None:
        self.job, self.updates, self.extras = job, updates, extras
        self.segments: list[Segment] = []
        self.shapes: Shapes = {}
        self.states: Runs = []
        self.temporaries: Runs = []
        self.parameters = tuple(
            Parameter(weight, prefix + weight.name, extras.master or dtype_of_weight(job.run, weight), count)
            for prefix, weight, count in weights_of(job.model)
            if job.trained(weight)
        )
        kept = () if extras.passing else self.parameters
        self.gradients = [(self._like(Account.GRADIENTS, one, job.run.gradients), one.count) for one in kept]
        self.ends: tuple[tuple[int, int], ...] = ()
        self.work = job.book.add(
            Line(
                Account.WORKSPACE, "cuBLAS workspace of one thread", (Axis(Dim.ELEMENTS, extras.workspace),), UINT8,
                extras.workspace, Basis.COUNTED, CUBLAS.source,
            )
        )  # fmt: skip

    def _like(self, account: Account, one: Parameter, dtype: DType) -> int:
        return self.job.book.tensor(account, one.name, one.weight.dims, dtype, ACCUMULATE)

    def _weight(self, name: str, weight: Weight) -> int:
        dtype = dtype_of_weight(self.job.run, weight)
        return self.job.book.tensor(Account.WEIGHTS, name, weight.dims, dtype, MODELS)

    def build(self) -> None:
        """Weights, buffers, master weights, buckets."""
        job, extras = self.job, self.extras
        lines = [
            (self._weight(prefix + weight.name, weight), count) for prefix, weight, count in weights_of(job.model)
        ]
        lines += remainder_line(job.book, Account.WEIGHTS, lines)
        lines += [
            (job.book.tensor(Account.BUFFERS, one.name, one.dims, one.dtype, MODELS), 1) for one in job.model.buffers
        ]
        if job.model.rotary:
            half = (Axis(Dim.ROPE_DIM, job.model.rotary.dim // len(FREQUENCIES)),)
            lines += [
                (job.book.tensor(Account.BUFFERS, f"rotary_emb.{name}", half, FP32, MODELS), len(job.model.rotary.sets))
                for name in FREQUENCIES
            ]
        for account, dtype in ((Account.MASTER, extras.master), (Account.GRADIENTS, extras.main_gradients)):
            if dtype is not None:
                name = "main gradient of " if account is Account.GRADIENTS else ""
                lines += [
                    (job.book.tensor(account, name + one.name, one.weight.dims, dtype, RECIPE), one.count)
                    for one in self.parameters
                ]
        if extras.buckets:
            lines.append((bucket_line(job.book, self.parameters, job.run.gradients, extras.bucket_cap), 1))
        if extras.scaler:
            scalar = (Axis(Dim.ELEMENTS, 1),)
            lines.append((job.book.tensor(Account.OPTIMIZER, SCALER.name, scalar, FP32, SCALER.source), SCALER.tensors))
        self._add(INIT, births(lines))
        if extras.buckets:
            self._broadcast()

    def _broadcast(self) -> None:
        """DistributedDataParallel sends rank 0's weights in flat copies when it is built."""
        weights = sum(elements(weight.dims) * count for _, weight, count in weights_of(self.job.model))
        dtype = self.job.run.setting.weights
        size = min(DDP.broadcast // dtype.bytes_of(1), weights)
        flat = (Axis(Dim.ELEMENTS, size),)
        line = self.job.book.tensor(Account.BUCKETS, "flat copy of weights to broadcast", flat, dtype, DDP.source)
        self._add(INIT, [((line + 1, -line - 1), 1)])

    def _add(self, moment: str, runs: Runs) -> None:
        self.segments += [Segment(moment, events, repeat) for events, repeat in runs]

    def step(self, number: int, kinds: tuple[Micro, ...]) -> None:
        """One optimizer step: micro-batches of these kinds in turn, then clip and update."""
        name = STEPS[number]
        for kind in kinds:
            first = number == 0 and not any(segment.moment.endswith(OPTIMIZER) for segment in self.segments)
            opening = first and kind is kinds[0]
            self._micro(name, kind, opening)
            if opening:
                self.ends = self._gradient_ends(len(kind.backward))
            if kind is kinds[0] and not (number and self.job.run.keeps_gradients):
                self._add(self.segments[-1].moment, births(self.ends))
        if self.updates.clips:
            self._add(f"{name}: {CLIP}", clip_events(self.job.book, self.parameters))
        self._update(name, number == 0)

    def _micro(self, name: str, kind: Micro, first: bool) -> None:
        work = (Segment(f"{name}: forward", (self.work + 1,)),) if first else ()
        self.segments += work
        self.segments += [segment._replace(moment=f"{name}: {segment.moment}") for segment in kind.forward]
        if not first:  # the caller's names are bound again
            self.segments.append(Segment(self.segments[-1].moment, tuple(-line - 1 for line in kind.named)))
        behind = [segment._replace(moment=f"{name}: {segment.moment}") for segment in kind.backward]
        if first:  # the backward thread's first product comes after the loss's own gradients
            behind.insert(1, Segment(behind[0].moment, (self.work + 1,)))
        self.segments += behind

    def _update(self, name: str, creates: bool) -> None:
        if creates:
            self.states, self.temporaries = self._states()
        self._add(f"{name}: {OPTIMIZER}", [*(self.states if creates else ()), *self.temporaries])
        if not self.job.run.keeps_gradients:
            self._add(f"{name}: {OPTIMIZER}", deaths([*self.gradients, *self.ends]))


    def _gradient_ends(self, behind: int) -> tuple[tuple[int, int], ...]:
        """Unsplit ends of the gradients' blocks: of as much of them as exceeds the memory that the loss has taken."""
        book = self.job.book
        high, _ = water(book.lines, self.segments[: -behind + 1 or None], self.shapes)
        _, end = water(book.lines, self.segments, self.shapes)
        fresh = Fresh.above(high, end, bytes_of(self.gradients, book))
        return remainder_line(book, Account.GRADIENTS, self.gradients[::-1], fresh)

    def _states(self) -> tuple[Runs, Runs]:
        """Births of the optimizer's states, and the events of its temporaries."""
        book, updates = self.job.book, self.updates
        how = updates.row.implementation(updates.implementation)
        lines = state_lines(book, updates.row, self.parameters, updates.how)
        groups = [] if self.extras.in_backward else self._groups(self.parameters)
        whole = [whole_step(book, updates.row, how, group) for group in groups]
        needed = bytes_of(lines, book) + max((bytes_of(one, book) for one in whole), default=0)
        high, end = water(book.lines, self.segments, self.shapes)
        fresh = Fresh.above(high, end + needed, needed)
        temporaries: Runs = []
        for group, one in zip(groups, whole, strict=True):
            made = [*one, *remainder_line(book, Account.STEP, one, fresh)]
            loop = tuple(one_by_one(book, updates.row, how, group))
            temporaries += [*births(made), *deaths(made), (loop, 1)]
        return births([*lines, *remainder_line(book, Account.OPTIMIZER, lines, fresh)]), temporaries

    def _groups(self, stepped: Sequence[Parameter]) -> list[tuple[Parameter, ...]]:
        """Parameters by optimizer group: a group's temporaries are gone when the next one's turn comes."""
        apart = self.job.run.undecayed(self.job.model.family)
        groups = [tuple(one for one in stepped if (one.weight.role in apart) == last) for last in (False, True)]
        return [group for group in groups if group]


def dtype_of_weight(run: Run, weight: Weight) -> DType:
    """The dtype in which a weight is kept."""
    return run.setting.norms if weight.role is Role.NORM else run.setting.weights


def compose(job: Job, updates: Updates, extras: Extras) -> list[Segment]:
    """All segments of a run: building, step 1 (states appear), step 2 (as every later one)."""
    steps = _Steps(job, updates, extras)
    steps.build()
    shared = shared_weights(job.model)
    viewed = job.run.setting.autocast is None
    account = Account.BACKWARD if viewed else Account.GRADIENTS  # a view cannot become the gradient that stays
    waiting = {
        weight: job.book.tensor(account, weight.name, weight.dims, dtype_of_weight(job.run, weight), ACCUMULATE)
        for weight in shared
        if job.trained(weight)
    }
    leaves = Leaves(
        True, job.run.gradients, waiting, viewed, extras.passing, _stepping(updates, extras)
    )
    fresh = micro(job, leaves)
    again = None
    if job.run.accumulation > 1 or job.run.keeps_gradients:
        again = micro(job, replace(leaves, fresh=False))
    inputs = _inputs(job)
    first_forward = f"{STEPS[0]}: forward"
    steps.segments += [Segment(first_forward, *run) for run in births([(inputs, job.run.batch_tensors)])]
    for number in range(len(STEPS)):
        first = again if number and job.run.keeps_gradients and again else fresh
        steps.step(number, (first, again) if job.run.accumulation > 1 and again else (first,))
    return steps.segments


def _stepping(updates: Updates, extras: Extras) -> int:
    """Temporaries of one parameter's size that a step in backward makes."""
    if not extras.in_backward:
        return 0
    how = updates.row.implementation(updates.implementation)
    return sum(one.count for one in how.temporaries if one.scope in (Scope.ALL, Scope.CURRENT))


def _inputs(job: Job) -> int:
    setting = job.run.setting
    dims = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence))
    return job.book.tensor(Account.INPUTS, "token ids, labels or mask", dims, INT64, MODELS)
