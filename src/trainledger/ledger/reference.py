"""Passes without gradients in a micro-batch: of the policy over further sequences, and of a reference model.

A reference is a frozen model beside the trained one, or the trained one without its adapter. Its log-probabilities are
computed within each micro-batch, while the policy's saved tensors live, or of all batches before training.
Source: the rows in facts/preferences.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainledger.base.dims import Dims
from trainledger.facts.phases import POLICY, REFERENCE
from trainledger.facts.preference_row import Asked, Before, Preference, Reading
from trainledger.facts.preferences import AHEAD_BATCH, GIVEN, prepared_of
from trainledger.facts.sharding import SECOND
from trainledger.ledger.arrange import Micro
from trainledger.ledger.book import Book, Made
from trainledger.ledger.layout import Layout, Schedule
from trainledger.ledger.layout_zero3 import ZeroParts
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.opening import Job
from trainledger.ledger.reference_log import logged, read_later
from trainledger.ledger.scoring import Scoring, ahead_of, trainer_of
from trainledger.ledger.step import Updates
from trainledger.ledger.strategy import NO_WRAP, dtypes_of, fsdp_of, layout_of
from trainledger.ledger.tape import Storage
from trainledger.ledger.updates import Runs, births
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Events, Segment
from trainledger.model.build import model_of, upcasts
from trainledger.model.program import Model
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan

LEAVES = {"adapter": None, "trainable": "none"}  # what a plan of the frozen model has instead


class Named(Book):
    """A view of a book whose new lines are of a role's model, and whose names begin with a word (the role's, unless
    another is given), so that two models' lines stay apart."""

    __slots__ = ("base", "role", "word")

    def __init__(self, base: Book, role: str, word: str = "") -> None:
        super().__init__()
        self.base, self.role, self.word = base, role, f"{word or role}: "
        self.lines = base.lines

    def add(self, line: Line) -> int:
        """The number of this line under its longer name."""
        return self.base.add(replace(line, name=self.word + line.name, role=self.role))

    def number(self, account: Account, name: str, size: int) -> int | None:
        """The number of the line of this account, longer name and rounded size (bytes), where there is one."""
        return self.base.number(account, self.word + name, size)

    def storage(self, account: Account, name: str, storage: Storage, why: str = "") -> int:
        """The line of a tape's storage."""
        return self.base.belongs(self.base.storage(account, self.word + name, storage, why), self.role)

    def made(self, account: Account, name: str, dims: Dims, how: Made) -> int:
        """The line of one tensor that is spread over ranks or made on another stream."""
        return self.base.belongs(self.base.made(account, self.word + name, dims, how), self.role)

    def queue(self, number: int) -> None:
        """Copies of this line go in the order in which they come."""
        self.base.queue(number)


@dataclass(frozen=True, slots=True)
class Reference:
    """The frozen model's weights as events of building; passes of all batches before training; passes in each
    micro-batch before the trained one's forward and after it, with what lives until the loss function returns; lines
    that the script names until the next ones' come; after how many events of a pass its first matrix product has
    returned. `held`: the book in which lines of the trained one's are told that its trainer lets go of then."""

    weights: Runs
    first: tuple[Segment, ...]
    before: tuple[Segment, ...]
    after: tuple[Segment, ...]
    named: tuple[int, ...]
    products: Mapping[Events, int]
    held: Book | None = None

    def around(self, micro: Micro) -> Micro:
        """A micro-batch with the passes in it."""
        bound = micro.bound + len(self.before) if micro.early else 0
        loss, *rest = micro.named
        logits = self._logits(rest)
        gone = (Segment(REFERENCE, tuple(-line - 1 for line in logits)),) if logits else ()
        named = (loss, *(line for line in rest if line not in logits), *self.named)
        forward = (*self.before, *micro.forward, *self.after, *gone)
        return replace(micro, forward=forward, named=named, bound=bound)

    def _logits(self, named: list[int]) -> list[int]:
        """What of the lines that the trained one's forward names its trainer lets go of before backward."""
        lines = self.held.lines if self.held is not None else ()
        return [line for line in named if lines and lines[line].account is Account.LOGITS]


class Pass(NamedTuple):
    """One forward with its log-probabilities; lines that the script names until the next one of its kind; products."""

    segments: tuple[Segment, ...]
    named: tuple[int, ...]
    products: Mapping[Events, int]

    @property
    def ended(self) -> tuple[Segment, ...]:
        """The end of what it names."""
        return (Segment(REFERENCE, tuple(-line - 1 for line in self.named)),) if self.named else ()


NOTHING = Pass((), (), {})


def reference_of(plan: Plan, job: Job, updates: Updates, rank: int | None) -> Reference | None:
    """What a plan's task runs beside the policy's own pass on one rank; None where it runs nothing."""
    row = trainer_of(plan)
    if row is None or not (row.before or row.after):
        return None
    beside = _Beside(plan, job, updates, rank)
    if row.reading is not None:
        return _read(beside, row, row.reading)
    ahead = ahead_of(plan, row)
    made = one_pass(beside.frozen(job.run.scoring), row.names)
    again = one_pass(beside.own(job.run.scoring), row.names) if row.before else NOTHING
    inside = () if ahead else made.segments * row.after
    return Reference(
        weights=beside.weights(row),
        first=made.segments if ahead else (),
        before=again.segments * row.before,
        after=inside,
        named=(*again.named * row.before, *made.named * row.after),
        products=made.products,
    )


@dataclass(frozen=True, slots=True)
class _Beside:
    """The frozen model of a plan and the trained one, as passes without gradients see them."""

    plan: Plan
    job: Job
    updates: Updates
    rank: int | None

    def frozen(self, scoring: Scoring) -> Layout:
        """The reference's layout for a pass of this loss."""
        alone = frozen_plan(self.plan)
        other = self.plan.adapter is not None or upcasts(self.plan)  # the policy has what a model loaded alone has not
        model = model_of(alone) if other else self.job.model
        return laid_out(
            alone,
            silent(self._ahead(self._scored(scoring)), model, REFERENCE, self._asks(True)),
            self.updates,
            self.rank,
        )

    def own(self, scoring: Scoring) -> Layout:
        """The policy's."""
        job = silent(self._scored(scoring), self.job.model, POLICY, self._asks(False))
        return laid_out(self.plan, job, self.updates, self.rank)

    def weights(self, row: Preference) -> Runs:
        """How the reference's weights come to be, where it is a model of its own that stays."""
        apart = self.plan.adapter is None or row.names
        stays = not ahead_of(self.plan, row) or self.plan.stack.options.get(GIVEN)
        return standing(self.frozen(self.job.run.scoring)) if apart and stays else []

    def _scored(self, scoring: Scoring) -> Job:
        return replace(self.job, run=replace(self.job.run, scoring=scoring))

    def _ahead(self, job: Job) -> Job:
        """The job in the batches that are read before training, where they are."""
        row, many = trainer_of(self.plan), self.plan.stack.options.get(AHEAD_BATCH)
        if row is None or not many or not ahead_of(self.plan, row):
            return job
        each = job.run.setting.batch // self.plan.batch.micro_batch
        return replace(job, run=replace(job.run, setting=replace(job.run.setting, batch=int(many) * each)))

    def _asks(self, reference: bool) -> bool:
        """Whether a pass gathers keys and values; a model that trains with recomputed layers gathers none, and TRL's
        reference is that one where it has an adapter."""
        run, reading = self.job.run, self.job.run.scoring.reading
        trains = not reference or (reading is not None and self.plan.adapter is not None)
        asked = run.pairs if reading is None else reading.asked is Asked.CACHE
        return asked and (not trains or run.recompute == "none")


def _read(beside: _Beside, row: Preference, reading: Reading) -> Reference:
    """The passes of a trainer whose loss function reads all logits."""
    job, scoring = beside.job, beside.job.run.scoring
    ahead = ahead_of(beside.plan, row)
    kept = reading.before is not Before.GONE
    main = one_pass(beside.frozen(scoring.of_reference), not ahead and bool(reading.of_reference))
    again, theirs = NOTHING, NOTHING
    if row.before:
        again = one_pass(beside.own(scoring.of_further), kept)
        theirs = one_pass(beside.frozen(scoring.of_further), kept)
    last = read_later(job) if reading.before is Before.READ_LAST else ()
    passed = (*last, *again.ended)
    inside = (*theirs.segments, *main.segments, *last, *theirs.ended)
    return Reference(
        weights=beside.weights(row),
        first=(*theirs.segments, *main.segments, *theirs.ended) if ahead else (),
        before=again.segments,
        after=(*passed, *(() if ahead else (*inside, *logged(job), *main.ended))),
        named=(),
        products=main.products,
        held=job.book if scoring.held else None,
    )


def frozen_plan(plan: Plan) -> Plan:
    """The plan of the reference model: as the trainers prepare it, whole on every rank unless FSDP or stage 3 spreads
    the policy; a model of its own as one unit under FSDP2 where the trainer does not wrap it by layers."""
    parallel, row = plan.parallel, trainer_of(plan)
    prepared = prepared_of(row) if row is not None else None
    if fsdp_of(plan) == SECOND and plan.adapter is None and prepared is not None and prepared.unit:
        options = {**parallel.options, "auto_wrap_policy": NO_WRAP}
        parallel = parallel.model_copy(update={"options": options})
    return plan.model_copy(update={**LEAVES, "parallel": parallel})


def silent(job: Job, model: Model, role: str, caches: bool = False, word: str = "") -> Job:
    """A role's model of which nothing is trained and nothing recomputed, nor anything made for a log; with `word`, or
    else the role's, its lines' names begin; `caches`: it gathers keys and values."""
    setting = replace(job.run.setting, training=False)
    software = replace(job.run.software, caches=caches and job.run.software.caches)
    scoring = replace(job.run.scoring, logs=False)
    run = replace(job.run, setting=setting, scoring=scoring, recompute="none", modules=(), every=1, software=software)
    return Job(Named(job.book, role, word), model, run, lambda weight: False)


def laid_out(plan: Plan, job: Job, updates: Updates, rank: int | None) -> Layout:
    """The layout in which a frozen model runs forward."""
    spread = plan.parallel.strategy == "zero3" or (fsdp_of(plan) and not deepspeed_of(plan))
    if spread:
        return layout_of(plan, job, updates, None, rank)
    return Layout(job, Schedule(1, False, False), dtypes_of(plan))


def standing(layout: Layout) -> Runs:
    """How the weights of a model that only runs forward come to be."""
    return layout.forward_only() if isinstance(layout, ZeroParts) else births(layout.weights())


def one_pass(layout: Layout, stays: bool) -> Pass:
    """One forward; what the caller names of it `stays` until the next one's comes, or dies at once. What a strategy
    leaves gathered is given back, as verl does with FSDP's root; ZeRO-3 traces the first and knows what comes from the
    third on."""
    made = layout.micros(Leaves(True, layout.job.run.gradients, {}))
    micro = [made(later)[0] for later in (False, True, True)][-1]
    segments = tuple(Segment(REFERENCE, events, repeat) for _, events, repeat, _ in micro.forward)
    named = micro.named if stays else ()
    left = Counter[int]()
    for _, events, repeat, _ in segments:
        for event in events:
            left[abs(event) - 1] += repeat if event > 0 else -repeat
    gone = tuple(-line - 1 for line, copies in (left - Counter(named)).items() for _ in range(copies))
    return Pass((*segments, Segment(REFERENCE, gone)) if gone else segments, named, micro.products)
