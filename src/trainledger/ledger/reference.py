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
from trainledger.base.sources import Source
from trainledger.facts.dtypes import DType
from trainledger.facts.preferences import AHEAD, GIVEN
from trainledger.ledger.arrange import Micro
from trainledger.ledger.book import Book, Made
from trainledger.ledger.layout import Layout, Schedule
from trainledger.ledger.layout_zero3 import ZeroParts
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.opening import Job
from trainledger.ledger.run import trainer_of
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

REFERENCE, POLICY = "reference", "policy"  # the first is the moment of the passes; with them names of lines begin
LEAVES = {"adapter": None, "trainable": "none"}  # what a plan of the frozen model has instead


class Named(Book):
    """A view of a book whose new lines' names begin with a word, so that two models' lines stay apart."""

    __slots__ = ("base", "word")

    def __init__(self, base: Book, word: str) -> None:
        super().__init__()
        self.base, self.word = base, f"{word}: "
        self.lines = base.lines

    def add(self, line: Line) -> int:
        """The number of this line under its longer name."""
        return self.base.add(replace(line, name=self.word + line.name))

    def number(self, account: Account, name: str, size: int) -> int | None:
        """The number of the line of this account, longer name and rounded size (bytes), where there is one."""
        return self.base.number(account, self.word + name, size)

    def storage(self, account: Account, name: str, storage: Storage, why: str = "") -> int:
        """The line of a tape's storage."""
        return self.base.storage(account, self.word + name, storage, why)

    def tensor(self, account: Account, name: str, dims: Dims, dtype: DType, source: Source) -> int:
        """The line of one tensor of these dims."""
        return self.made(account, name, dims, Made(dtype, source))

    def made(self, account: Account, name: str, dims: Dims, how: Made) -> int:
        """The line of one tensor that is spread over ranks or made on another stream."""
        return self.base.made(account, self.word + name, dims, how)

    def queue(self, number: int) -> None:
        """Copies of this line go in the order in which they come."""
        self.base.queue(number)


@dataclass(frozen=True, slots=True)
class Reference:
    """The frozen model's weights as events of building; passes of all batches before training; passes in each
    micro-batch before the trained one's forward and after it; lines that the script names until the next ones' come;
    after how many events of a pass its first matrix product has returned."""

    weights: Runs
    first: tuple[Segment, ...]
    before: tuple[Segment, ...]
    after: tuple[Segment, ...]
    named: tuple[int, ...]
    products: Mapping[Events, int]

    def around(self, micro: Micro) -> Micro:
        """A micro-batch with the passes in it."""
        bound = micro.bound + len(self.before) if micro.early else 0
        forward = (*self.before, *micro.forward, *self.after)
        return replace(micro, forward=forward, named=(*micro.named, *self.named), bound=bound)


class Pass(NamedTuple):
    """One forward with its log-probabilities; lines that the script names until the next one of its kind; products."""

    segments: tuple[Segment, ...]
    named: tuple[int, ...]
    products: Mapping[Events, int]


NOTHING = Pass((), (), {})


def reference_of(plan: Plan, job: Job, updates: Updates, rank: int | None) -> Reference | None:
    """What a plan's task runs beside the policy's own pass on one rank; None where it runs nothing."""
    row = trainer_of(plan)
    if row is None or not (row.before or row.after):
        return None
    ahead = bool(plan.stack.options.get(AHEAD)) and not row.names
    apart = plan.adapter is None or row.names
    alone = frozen_plan(plan)
    other = plan.adapter is not None or upcasts(plan)  # the policy has what a model that is loaded alone has not
    base = model_of(alone) if other else job.model
    frozen = laid_out(alone, silent(job, base, REFERENCE), updates, rank)
    own = laid_out(plan, silent(job, job.model, POLICY), updates, rank) if row.before else frozen
    made = one_pass(frozen, row.names)
    again = one_pass(own, row.names) if row.before else NOTHING
    inside = () if ahead else made.segments * row.after
    return Reference(
        weights=standing(frozen) if apart and (not ahead or plan.stack.options.get(GIVEN)) else [],
        first=made.segments if ahead else (),
        before=again.segments * row.before,
        after=inside,
        named=(*again.named * row.before, *made.named * row.after),
        products=made.products,
    )


def frozen_plan(plan: Plan) -> Plan:
    """The plan of the reference model: as the trainers prepare it, whole on every rank unless FSDP or stage 3 spreads
    the policy; as one unit under FSDP, which TRL does not wrap by layers."""
    parallel = plan.parallel
    if fsdp_of(plan):
        options = {**parallel.options, "auto_wrap_policy": NO_WRAP}
        parallel = parallel.model_copy(update={"options": options})
    return plan.model_copy(update={**LEAVES, "parallel": parallel})


def silent(job: Job, model: Model, word: str) -> Job:
    """A model of which nothing is trained and nothing recomputed; with `word` its lines' names begin."""
    setting = replace(job.run.setting, training=False)
    asked = job.run.pairs and (word == REFERENCE or job.run.recompute == "none")  # TRL's trainers ask for no cache
    software = replace(job.run.software, caches=asked and job.run.software.caches)
    run = replace(job.run, setting=setting, recompute="none", modules=(), every=1, software=software)
    return Job(Named(job.book, word), model, run, lambda weight: False)


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
    segments = tuple(Segment(REFERENCE, events, repeat) for _, events, repeat in micro.forward)
    named = micro.named if stays else ()
    left = Counter[int]()
    for _, events, repeat in segments:
        for event in events:
            left[abs(event) - 1] += repeat if event > 0 else -repeat
    gone = tuple(-line - 1 for line, copies in (left - Counter(named)).items() for _ in range(copies))
    return Pass((*segments, Segment(REFERENCE, gone)) if gone else segments, named, micro.products)
