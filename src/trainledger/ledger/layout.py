"""How one rank holds model states: which lines its weights, gradients and parameters are, and its micro-batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from trainledger.base.dims import Axis, Dim
from trainledger.facts.code_read import ACCUMULATE, MODELS
from trainledger.facts.dtypes import FP32, DType
from trainledger.ledger.arrange import NONE, Hooks, Micro, Pieces, arranged
from trainledger.ledger.book import Made
from trainledger.ledger.leaves import Leaves, keeps_own
from trainledger.ledger.loading import Loaded, adapted, loaded
from trainledger.ledger.micro import walk
from trainledger.ledger.offloaded import Offloaded, offloading_of, on_host
from trainledger.ledger.opening import Job
from trainledger.ledger.registered import around, ordered
from trainledger.ledger.updates import Parameter, Runs, births
from trainledger.lines.line import Account, Line
from trainledger.model.program import Model, Weight
from trainledger.model.quantised import Stored as Tensor
from trainledger.model.quantised import tensors_of
from trainledger.model.weights import WITH_NORMS

FREQUENCIES = ("inv_freq", "original_inv_freq")  # of as many rotary dims as there are pairs
Copies = list[tuple[int, int]]  # lines, and how many of each


def weights_of(model: Model) -> Iterator[tuple[str, Weight, int]]:
    """Every parameter in the order of `model.parameters()`: prefix of its line's name, weight, copies.

    Equal layers stand where the first of them does.
    """
    leading, early, last = around(model)
    blocks = ((f"{one.name}.*.", ordered(model, one.weights), one.count) for one in model.blocks)
    parts = (("", leading, 1), ("", ordered(model, model.embeddings), 1), ("", early, 1), *blocks, ("", last, 1))
    return ((prefix, weight, count) for prefix, weights, count in parts for weight in weights)


def buffers_of(job: Job) -> Copies:
    """Device tensors that are no parameters."""
    book = job.book
    lines = [(book.tensor(Account.BUFFERS, one.name, one.dims, one.dtype, MODELS), 1) for one in job.model.buffers]
    if not job.model.rotary or job.model.rotary.looked:
        return lines
    widths = Counter(job.model.rotary.width(name) for name in job.model.rotary.sets)
    halves = [((Axis(Dim.ROPE_DIM, width // len(FREQUENCIES)),), count) for width, count in widths.items()]
    named = [(f"rotary_emb.{name}", half, count) for name in FREQUENCIES for half, count in halves]
    return lines + [(book.tensor(Account.BUFFERS, name, half, FP32, MODELS), count) for name, half, count in named]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which micro-batches a step has: how many, whether gradients are reduced in the last one only, and whether those
    of the step before are still there."""

    count: int
    last_only: bool
    keeps: bool

    def flags(self, later: bool) -> list[tuple[bool, bool]]:
        """Of every different micro-batch of a step in turn, and one more of those between the first and the last, which
        may not fit what those before it left cached: whether no gradient is there before, whether it reduces.

        `later`: of a step after the first.
        """
        fresh = not (later and self.keeps)
        first = (fresh, not self.last_only or self.count == 1)
        middle = (fresh, False) if self.last_only else (False, True)
        between = [middle] if self.count > len((first, first)) else []
        return [first, *between, *([(middle[0], True)] if self.count > 1 else [])]


class Stored(NamedTuple):
    """The dtypes in which weights, norms and master weights (None: there are none) are kept."""

    weights: DType
    norms: DType
    master: DType | None = None


class Own(Protocol):
    """A strategy that builds its states and steps the optimizer by itself."""

    def build(self) -> Runs:
        """Events of building the model's states."""

    def step(self, first: bool) -> Sequence[tuple[str, Runs]]:
        """Events of one step after its micro-batches, by moment; `first`: the optimizer's states appear."""


class Layout:
    """Everything whole on every rank."""

    def __init__(self, job: Job, schedule: Schedule, dtypes: Stored) -> None:
        self.job, self.schedule, self.dtypes = job, schedule, dtypes
        self.parameters = self.parameters_of()
        self.offloaded: tuple[tuple[Line, int], ...] = ()

    def parameters_of(self) -> tuple[Parameter, ...]:
        """What the optimizer updates, in the order of the model's parameters."""
        return tuple(
            Parameter(self.local(weight), prefix + weight.name, self.dtypes.master or self.stored(weight), count)
            for prefix, weight, count in weights_of(self.job.model)
            if self.job.trained(weight)
        )

    @property
    def own(self) -> Own | None:
        """What builds and steps in place of the usual order; None where nothing does."""
        return None

    @property
    def rank(self) -> int | None:
        """The rank that is looked at, where ranks differ."""
        return None

    @property
    def reduces(self) -> bool:
        """Whether gradients are whole only until they are reduced to this rank's part."""
        return False

    @property
    def equals(self) -> tuple[tuple[int, int], ...]:
        """Runs of ranks (first, last) that hold the same; empty where all do, or where it is not known."""
        return ()

    def host(self) -> tuple[tuple[Line, int], ...]:
        """Lines in the host's memory, with their copies."""
        return self.offloaded

    def around(self, pieces: Pieces) -> Hooks:
        """What happens around the pieces of a micro-batch; a forward without gradients packs nothing."""
        if not self.job.run.software.stashes or self.job.run.recompute == "none":
            return NONE
        layers, how = len(pieces.layers), offloading_of(self.job.run)
        self.offloaded = tuple(on_host(self.job.book.lines[pieces.hidden], layers, how.source))
        return Offloaded(pieces.hidden, layers, how.layers)

    def stored(self, weight: Weight) -> DType:
        """The dtype in which a weight is kept."""
        return weight.dtype or (self.dtypes.norms if weight.role in WITH_NORMS else self.dtypes.weights)

    def local(self, weight: Weight) -> Weight:
        """The part of a weight that this rank's optimizer updates."""
        return weight

    def held(self, weight: Weight) -> Weight:
        """The part of a weight that this rank stores."""
        return weight

    def weights(self) -> Copies:
        """Weights and buffers."""
        lines = Copies()
        for prefix, weight, count in weights_of(self.job.model):
            for one, shards in self.tensors(weight):
                made = Made(one.dtype, one.source or MODELS, shards)
                line = self.job.book.made(Account.WEIGHTS, prefix + one.name, one.dims, made)
                lines.append((line, count * one.copies))
        return lines + buffers_of(self.job)

    def tensors(self, weight: Weight) -> list[tuple[Tensor, int]]:
        """What this rank keeps a weight as, each with the ranks that it is spread over."""
        return [(one, self.shards) for one in tensors_of(self.held(weight), self.stored(weight))]

    @property
    def shards(self) -> int:
        """Over how many ranks a weight is spread."""
        return 1

    def building(self) -> Runs:
        """How weights and buffers come to be."""
        made = None if self.shards > 1 else self._in_turn()
        if made is None:
            return births(self.weights())
        return [*made.before, *births(buffers_of(self.job)), *made.after]

    def _in_turn(self) -> Loaded | None:
        """Parameters that do not come to be in the order of the model."""
        book, software, weights = self.job.book, self.job.run.software, list(weights_of(self.job.model))
        dtypes = {weight: self.stored(weight) for _, weight, _ in weights}
        made = loaded(book, weights, dtypes, software.release("peft"))
        if made is None and software.adapts and any(weight.tuned for weight in dtypes):
            return adapted(book, weights, dtypes, self.dtypes.weights)
        return made

    def gradients(self) -> Copies:
        """Gradients that stay until they are set to none."""
        book, lines = self.job.book, Copies()
        for one in self.parameters:
            dtype = one.dtype if keeps_own(one.weight) else self.job.run.gradients
            lines.append((book.tensor(Account.GRADIENTS, one.name, one.weight.slope, dtype, ACCUMULATE), one.count))
        return lines

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step, by whether it is later than the first."""
        made: dict[tuple[bool, bool, bool], Micro] = {}

        def of(rule: Leaves, short: bool) -> Micro:
            key = (rule.fresh, rule.copied, short)
            if key not in made:
                pieces, named = walk(self.job.short if short else self.job, rule)
                made[key] = arranged(pieces, named, self.around(pieces))
            return made[key]

        def step(later: bool) -> tuple[Micro, ...]:
            rest = self.job.run.alone
            flags = self.schedule.flags(later)
            rules = [leaves.of(number, len(flags), fresh) for number, (fresh, _) in enumerate(flags)]
            return tuple(of(rule, rest and (later or number > 0)) for number, rule in enumerate(rules))

        return step
