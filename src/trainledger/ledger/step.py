"""A run as a stream: building, then steps of forward, loss, backward, clip and optimizer, until they repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from trainledger.base.dims import Axis, Dim, elements
from trainledger.base.sources import Basis
from trainledger.facts.code_read import ACCUMULATE, MIXED_PRECISION, MODELS
from trainledger.facts.data_parallel import SCALER
from trainledger.facts.dtypes import FP32, INT64, UINT8, DType
from trainledger.facts.kernels import CUBLAS
from trainledger.facts.optimizer_bytes import MATRIX, StateOptions
from trainledger.facts.optimizer_kinds import Optimizer, Scope
from trainledger.ledger.arrange import Micro
from trainledger.ledger.beside import Beside, joined
from trainledger.ledger.buckets import broadcast_events, bucket_lines
from trainledger.ledger.host_stepped import HostStepped
from trainledger.ledger.layout import Layout, weights_of
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.loading import PRODUCT
from trainledger.ledger.losses import CHUNKED, FUSED
from trainledger.ledger.opening import Job
from trainledger.ledger.updates import Parameter, Runs, births, clip_events, deaths, one_by_one, state_lines, whole_step
from trainledger.ledger.whole_first import built
from trainledger.ledger.woven import rebound, with_workspace
from trainledger.lines.line import Account, Line
from trainledger.lines.moments import CLIP, FORWARD, INIT, OPTIMIZER, STEPS, in_part
from trainledger.lines.stream import Segment
from trainledger.model.program import Weight
from trainledger.model.prompts import shared_weights, virtual_tokens
from trainledger.model.quantised import sent_of


@dataclass(frozen=True, slots=True)
class Updates:
    """The optimizer of a run: its row, its implementation's name, options of its states, whether it clips, roles of
    weights whose states are kept out of codes, and of those that are no matrices for it."""

    row: Optimizer
    implementation: str | None
    how: StateOptions
    clips: bool
    wide: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    def options(self, weight: Weight) -> StateOptions:
        """The options of one weight's states."""
        if weight.role in self.apart:
            return replace(self.how, matrix=False)
        return replace(self.how, wide=True) if weight.role in self.wide else self.how

    def takes(self, weight: Weight) -> bool:
        """Whether the optimizer updates a weight itself, and does not hand it to its fallback."""
        return not self.row.fallback or (len(weight.dims) == MATRIX and weight.role not in self.apart)


@dataclass(frozen=True, slots=True)
class Extras:
    """What lies beside the model.

    Workspace bytes of one thread's matrix products; dtype of master weights and of a second gradient buffer (None:
    there is none); whether gradients are reduced in buckets, as views of them, of `bucket_cap` bytes (0: the default),
    in a step's last micro-batch only, and looking for `unused` parameters, which keeps the first buckets; whether the
    loss is scaled; whether the optimizer steps as each gradient appears, or each leaves for the host.
    """

    workspace: int
    master: DType | None = None
    main_gradients: DType | None = None
    buckets: bool = False
    bucket_views: bool = False
    bucket_cap: int = 0
    last_only: bool = False
    unused: bool = False
    scaler: bool = False
    in_backward: bool = False
    leaving: bool = False

    @property
    def passing(self) -> bool:
        """Whether no gradient stays: a bucket, the optimizer or the host takes each at once."""
        return self.bucket_views or self.in_backward or self.leaving


class _Steps:
    """Lines and segments of the run as they are put together."""

    __slots__ = (
        "before", "buckets", "extras", "gradients", "job", "layout", "parameters", "rebuilt", "reduced", "segments",
        "states", "temporaries", "updates", "warm", "work",
    )  # fmt: skip

    def __init__(self, job: Job, layout: Layout, updates: Updates, extras: Extras) -> None:
        self.job, self.layout, self.updates, self.extras = job, layout, updates, extras
        self.segments: list[Segment] = []
        self.before: Micro | None = None
        self.rebuilt = self.reduced = self.warm = False
        self.states: Runs = []
        self.temporaries: Runs = []
        self.parameters = layout.parameters
        self.gradients = [] if extras.passing else layout.gradients()
        self.buckets: list[tuple[int, int]] = []
        self.work = job.book.add(
            Line(
                Account.WORKSPACE, "cuBLAS workspace of one thread", (Axis(Dim.ELEMENTS, extras.workspace),), UINT8,
                extras.workspace, Basis.COUNTED, CUBLAS.source,
            )
        )  # fmt: skip

    def build(self) -> None:
        """Weights, buffers, master weights, buckets."""
        job, extras, own = self.job, self.extras, self.layout.own
        if own is not None:
            self._add(INIT, own.build())
            return
        self._add(INIT, built(self.layout))
        self._multiplied()
        lines: list[tuple[int, int]] = []
        for account, dtype in ((Account.MASTER, extras.master), (Account.GRADIENTS, extras.main_gradients)):
            if dtype is not None:
                name = "main gradient of " if account is Account.GRADIENTS else ""
                lines += [
                    (job.book.tensor(account, name + one.name, one.weight.dims, dtype, MIXED_PRECISION), one.count)
                    for one in self.parameters
                ]
        if extras.scaler:
            scalar = (Axis(Dim.ELEMENTS, 1),)
            lines.append((job.book.tensor(Account.OPTIMIZER, SCALER.name, scalar, FP32, SCALER.source), SCALER.tensors))
        self._add(INIT, births(lines))
        if extras.buckets:
            self._add(INIT, [(broadcast_events(job.book, self._sent()), 1)])
            weights = [one.weight for one in reversed(self.parameters) for _ in range(one.count)]
            self.buckets = self._buckets(weights, extras.bucket_cap if extras.unused else -1)
            self._add(INIT, births(self.buckets))
        if self.updates.row.eager:
            self.states, self.temporaries = self._states()
            self._add(INIT, self.states)

    def _multiplied(self) -> None:
        """The workspace of products that are made while the model is built, of DoRA's factors."""
        names = [line.name for line in self.job.book.lines]
        made = {number + 1 for number, name in enumerate(names) if name.endswith(PRODUCT)}
        segments = ((run, [at for at, one in enumerate(run, 1) if one in made]) for _, run, _, _ in self.segments)
        products = {events: found[0] for events, found in segments if found}
        self.warm = bool(products)
        self.segments = with_workspace(self.segments, products, self.work)

    def beside(self, beside: Beside) -> None:
        """The weights of what runs beside the model, and its passes before training."""
        self._add(INIT, beside.weights)
        self.warm = self.warm or bool(beside.first)
        self.segments += with_workspace(list(beside.first), beside.products, self.work)

    def _sent(self) -> list[tuple[DType, int]]:
        """Weights layer by layer, then buffers, as DistributedDataParallel sends them when it is built."""
        found: list[tuple[DType, int]] = []
        for _, group in groupby(weights_of(self.job.model), lambda one: (one[0], one[2])):
            row = list(group)
            own = [(weight, self.layout.stored(weight)) for _, weight, _ in row]
            sizes = [(one.dtype, elements(one.dims)) for weight, dtype in own for one in sent_of(weight, dtype)]
            found += sizes * row[0][2]
        return found + [(one.dtype, elements(one.dims)) for one in self.job.model.buffers]

    def _buckets(self, weights: Sequence[Weight], cap: int) -> list[tuple[int, int]]:
        """Buckets of these weights' gradients: each has one dtype."""
        sizes: dict[DType, list[int]] = {}
        for weight in weights:
            own = None if weight.tuned else weight.dtype
            sizes.setdefault(own or self.job.run.gradients, []).append(elements(weight.dims))
        return [one for dtype, row in sizes.items() for one in bucket_lines(self.job.book, row, dtype, cap)]

    def _rebuild(self, moment: str, kind: Micro) -> None:
        """Before the first forward after a reduction the one bucket gives way to those in the order in which gradients
        came."""
        if self.extras.buckets and not self.extras.unused:
            weights = [one.weight for one in kind.arrived]
            old, self.buckets = self.buckets, self._buckets(weights, self.extras.bucket_cap)
            self._add(moment, [*deaths(old), *births(self.buckets)])

    def _add(self, moment: str, runs: Runs) -> None:
        self.segments += [Segment(moment, events, repeat) for events, repeat in runs]

    def step(self, number: int, kinds: tuple[Micro, ...]) -> None:
        """One optimizer step: micro-batches of these kinds in turn, then clip and update."""
        name = STEPS[number]
        for left, kind in zip(reversed(range(len(kinds))), kinds, strict=True):
            if self.reduced and not self.rebuilt:
                self.rebuilt = True
                self._rebuild(in_part(name, FORWARD), kind)
            self._micro(name, kind, self.before is None)
            self.reduced = self.reduced or not (left and self.extras.last_only)
        own = self.layout.own
        if own is not None:
            for moment, runs in own.step(number == 0):
                self._add(in_part(name, moment), runs)
            return
        if self.updates.clips:
            self._add(in_part(name, CLIP), clip_events(self.job.book, self.parameters))
        self._update(name, number == 0)

    def _micro(self, name: str, kind: Micro, first: bool) -> None:
        ahead, behind = list(kind.forward), list(kind.backward)
        if first:
            ahead = ahead if self.warm else with_workspace(ahead, kind.products, self.work)
            behind = with_workspace(behind, kind.products, self.work)
        before, self.before = self.before, kind
        if before is not None and before.early:  # the model's results are named before the loss is made of them
            ahead.insert(kind.bound, Segment(ahead[kind.bound].moment, tuple(-line - 1 for line in before.early)))
        named = before.named if before is not None else ()
        if named and self.job.run.returns:
            self._add(in_part(name, FORWARD), [(tuple(-line - 1 for line in named), 1)])
            named = ()
        if self.job.run.pairs:  # the caller's names are bound again one by one
            ahead, named = [segment._replace(events=rebound(segment.events, named)) for segment in ahead], ()
        self.segments += [Segment(in_part(name, one.moment), one.events, one.repeat) for one in ahead]
        if named:  # the caller's names are bound again
            self.segments.append(Segment(self.segments[-1].moment, tuple(-line - 1 for line in named)))
        self.segments += [Segment(in_part(name, one.moment), one.events, one.repeat) for one in behind]

    def _update(self, name: str, creates: bool) -> None:
        if creates and not self.updates.row.eager:
            self.states, self.temporaries = self._states()
            self._add(in_part(name, OPTIMIZER), self.states)
        self._add(in_part(name, OPTIMIZER), self.temporaries)
        if not self.job.run.keeps_gradients:
            self._add(in_part(name, OPTIMIZER), deaths(self.gradients))

    def _states(self) -> tuple[Runs, Runs]:
        """Births of the optimizer's states, and the events of its temporaries."""
        book, updates = self.job.book, self.updates
        how = updates.row.implementation(updates.implementation)
        stepped = self.layout.updated if isinstance(self.layout, HostStepped) else self.parameters
        lines = state_lines(book, updates.row, stepped, updates.options)
        temporaries: Runs = []
        for group in [] if self.extras.in_backward else self._groups(stepped):
            made = whole_step(book, updates.row, how, group)
            temporaries += [*births(made), *deaths(made), *one_by_one(book, updates.row, how, group)]
        return births(lines), temporaries

    def _groups(self, stepped: Sequence[Parameter]) -> list[tuple[Parameter, ...]]:
        """Parameters by optimizer group: a group's temporaries are gone when the next one's turn comes."""
        apart = self.job.run.undecayed(self.job.model.family)
        groups = [tuple(one for one in stepped if (one.weight.role in apart) == last) for last in (False, True)]
        return [group for group in groups if group]


def compose(job: Job, layout: Layout, updates: Updates, extras: Extras, beside: Beside | None = None) -> list[Segment]:
    """All segments of a run: building, step 1 (states appear), step 2 (as every later one)."""
    steps = _Steps(job, layout, updates, extras)
    steps.build()
    if beside is not None:
        steps.beside(beside)
    micros = joined(layout.micros(_leaves(job, updates, extras, layout.reduces)), beside)
    inputs = _inputs(job)
    first_forward = in_part(STEPS[0], FORWARD)
    steps.segments += [Segment(first_forward, *run) for run in births([(inputs, job.run.batch_tensors)])]
    for number in range(len(STEPS)):
        steps.step(number, micros(number > 0))
    return steps.segments


def _leaves(job: Job, updates: Updates, extras: Extras, reduces: bool) -> Leaves:
    """What happens to gradients as they arrive, in a micro-batch before which there are none; `reduces`: a strategy
    takes them."""
    shared = shared_weights(job.model)
    setting = job.run.setting
    # a linear layer's own gradient of a weight that was not cast is a view; a fused head's is a tensor of its own
    plain = all(setting.autocast in (None, one.dtype or setting.weights) for one in shared)
    viewed = plain and job.run.loss not in (CHUNKED, FUSED)
    stays = Account.REDUCTION if reduces else Account.GRADIENTS
    account = Account.BACKWARD if viewed else stays  # a view cannot become the gradient that stays
    waiting = {
        weight: job.book.tensor(account, weight.name, weight.dims, weight.dtype or setting.weights, ACCUMULATE)
        for weight in shared
        if job.trained(weight)
    }
    late = extras.bucket_views and extras.last_only and not job.run.keeps_gradients  # no view is left of a step before
    return Leaves(True, job.run.gradients, waiting, viewed, extras.passing, _stepping(updates, extras), reduces, late)


def _stepping(updates: Updates, extras: Extras) -> int:
    """Temporaries of one parameter's size that a step in backward makes."""
    if not extras.in_backward:
        return 0
    how = updates.row.implementation(updates.implementation)
    return sum(one.count for one in how.temporaries if one.scope in (Scope.ALL, Scope.CURRENT))


def _inputs(job: Job) -> int:
    setting = job.run.setting
    dims = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence - virtual_tokens(job.model)))
    return job.book.tensor(Account.INPUTS, "token ids, labels or mask", dims, INT64, MODELS)
