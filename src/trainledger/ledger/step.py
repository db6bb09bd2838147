"""A run as a stream: building, then steps of forward, loss, backward, clip and optimizer, until they repeat."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import FP32, INT64, UINT8, DType
from trainledger.facts.kernels import CUBLAS
from trainledger.facts.optimizer_bytes import StateOptions
from trainledger.facts.optimizer_kinds import Optimizer
from trainledger.ledger.book import AUTOGRAD
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import Job, Micro, micro
from trainledger.ledger.run import Run
from trainledger.ledger.updates import Parameter, births, clip_events, deaths, state_lines, step_events
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Segment
from trainledger.model.program import Linear, Model, Role, Weight

STEPS = ("step 1", "step 2")
INIT, CLIP, OPTIMIZER = "init", "clip", "optimizer"


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
    second gradient buffer (None: there is none), and whether gradients are reduced in buckets, and as views of them."""

    workspace: int
    master: DType | None = None
    main_gradients: DType | None = None
    buckets: bool = False
    bucket_views: bool = False


class _Steps:
    """Lines and segments of the run as they are put together."""

    __slots__ = (
        "extras", "gradients", "job", "parameters", "segments", "states", "temporaries", "updates", "work",
    )  # fmt: skip

    def __init__(self, job: Job, updates: Updates, extras: Extras) -> None:
        self.job, self.updates, self.extras = job, updates, extras
        self.segments: list[Segment] = []
        self.states: tuple[int, ...] = ()
        self.temporaries: tuple[int, ...] = ()
        self.parameters = tuple(
            Parameter(weight, prefix + weight.name, extras.master or dtype_of_weight(job.run, weight), count)
            for prefix, weight, count in weights_of(job.model)
            if job.trained(weight)
        )
        self.gradients = [
            (self._like(Account.GRADIENTS, one, job.run.gradients), one.count) for one in self.parameters
        ]
        self.work = job.book.add(
            Line(
                Account.WORKSPACE, "cuBLAS workspace of one thread", (Axis(Dim.ELEMENTS, extras.workspace),), UINT8,
                extras.workspace, Basis.COUNTED, CUBLAS.source,
            )
        )  # fmt: skip

    def _like(self, account: Account, one: Parameter, dtype: DType) -> int:
        return self.job.book.tensor(account, one.name, one.weight.dims, dtype, AUTOGRAD)

    def build(self) -> None:
        """Weights, buffers, master weights, buckets."""
        job, extras = self.job, self.extras
        lines = [
            (job.book.tensor(Account.WEIGHTS, prefix + weight.name, weight.dims, dtype_of_weight(job.run, weight), AUTOGRAD), count)
            for prefix, weight, count in weights_of(job.model)
        ]
        lines += [
            (job.book.tensor(Account.BUFFERS, one.name, one.dims, FP32, AUTOGRAD), 1) for one in job.model.buffers
        ]
        for account, dtype in ((Account.MASTER, extras.master), (Account.GRADIENTS, extras.main_gradients)):
            if dtype is not None:
                name = "main gradient of " if account is Account.GRADIENTS else ""
                lines += [
                    (job.book.tensor(account, name + one.name, one.weight.dims, dtype, AUTOGRAD), one.count)
                    for one in self.parameters
                ]
        if extras.buckets:
            lines += [(self._like(Account.BUCKETS, one, job.run.gradients), one.count) for one in self.parameters]
        self.segments.append(Segment(INIT, births(lines)))

    def step(self, number: int, kinds: tuple[Micro, ...]) -> None:
        """One optimizer step: micro-batches of these kinds in turn, then clip and update."""
        name = STEPS[number]
        for kind in kinds:
            first = number == 0 and not any(segment.moment.endswith(OPTIMIZER) for segment in self.segments)
            self._micro(name, kind, first and kind is kinds[0])
        if self.updates.clips:
            self.segments.append(Segment(f"{name}: {CLIP}", clip_events(self.job.book, self.parameters)))
        self._update(name, number == 0)

    def _micro(self, name: str, kind: Micro, first: bool) -> None:
        work = (Segment(f"{name}: forward", (self.work + 1,)),) if first else ()
        self.segments += work
        self.segments += [segment._replace(moment=f"{name}: {segment.moment}") for segment in kind.forward]
        behind = [segment._replace(moment=f"{name}: {segment.moment}") for segment in kind.backward]
        if first:  # the backward thread's first product comes after the loss's own gradients
            behind.insert(1, Segment(behind[0].moment, (self.work + 1,)))
        self.segments += behind

    def _update(self, name: str, creates: bool) -> None:
        if creates:
            self.states, self.temporaries = self._states()
        events = self.states if creates else ()
        self.segments.append(Segment(f"{name}: {OPTIMIZER}", (*events, *self.temporaries)))
        if not self.job.run.keeps_gradients and not self.extras.bucket_views:
            self.segments.append(Segment(f"{name}: {OPTIMIZER}", deaths(self.gradients)))


    def _states(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Births of the optimizer's states, and the events of its temporaries."""
        book, updates = self.job.book, self.updates
        how = updates.row.implementation(updates.implementation)
        states = births(state_lines(book, updates.row, self.parameters, updates.how))
        temporaries = step_events(book, updates.row, how, self.parameters)
        return states, temporaries


def dtype_of_weight(run: Run, weight: Weight) -> DType:
    """The dtype in which a weight is kept."""
    return run.setting.norms if weight.role is Role.NORM else run.setting.weights


def compose(job: Job, updates: Updates, extras: Extras) -> list[Segment]:
    """All segments of a run: building, step 1 (states appear), step 2 (as every later one)."""
    steps = _Steps(job, updates, extras)
    steps.build()
    shared = shared_weights(job.model)
    waiting = {
        weight: job.book.tensor(Account.BACKWARD, f"waiting gradient of {weight.name}", weight.dims, dtype_of_weight(job.run, weight), AUTOGRAD)
        for weight in shared
        if job.trained(weight)
    }
    viewed = job.run.setting.autocast is None
    fresh = micro(job, Leaves(True, job.run.gradients, waiting, viewed, extras.bucket_views))
    again = None
    if job.run.accumulation > 1 or job.run.keeps_gradients:
        again = micro(job, Leaves(False, job.run.gradients, waiting, viewed, extras.bucket_views))
    inputs = _inputs(job)
    steps.segments.append(Segment(f"{STEPS[0]}: forward", births([(inputs, job.run.batch_tensors)])))
    for number in range(len(STEPS)):
        first = again if number and job.run.keeps_gradients and again else fresh
        steps.step(number, (first, again) if job.run.accumulation > 1 and again else (first,))
    return steps.segments


def _inputs(job: Job) -> int:
    setting = job.run.setting
    dims = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence))
    return job.book.tensor(Account.INPUTS, "token ids, labels or mask", dims, INT64, AUTOGRAD)
