"""One page of model states for an architecture review: what is counted, in which dtype, where, by how many ranks, and
what is left to other models.

Every number per rank adds up the ledger's own lines; those of the whole model are elements times bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainledger.answer.disk import beside
from trainledger.answer.estimate import Estimate
from trainledger.answer.saved import saved_of
from trainledger.answer.saved_sizes import dtype_of
from trainledger.answer.tables import entries
from trainledger.answer.traffic import Traffic, last_update, resident
from trainledger.base.dims import elements
from trainledger.facts.dtypes import DTYPES
from trainledger.facts.phases import POLICY
from trainledger.facts.recipes import SPLITS, Copy
from trainledger.ledger.beyond import in_steps
from trainledger.ledger.run import mixes
from trainledger.lines.line import Account, Line
from trainledger.model.counts import kinds
from trainledger.model.program import Linear, Model, Role
from trainledger.model.quantised import tensors_of
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

# How a strategy divides model states, by the row of the published table that it follows.
DIVIDES: dict[str, str] = {
    **dict.fromkeys(("none", "ddp", "fsdp1-noshard", "megatron-ddp"), "ddp"),
    **dict.fromkeys(("zero3", "fsdp1", "fsdp2", "hsdp", "megatron-fsdp"), "zero3"),
    "zero1": "zero1",
    "zero2": "zero2",
    "megatron-distopt": "distributed-optimizer",
}
TRANSIENT = (Account.GATHERED, Account.REDUCTION, Account.BUCKETS, Account.CASTS, Account.STEP, Account.CLIP)
HELD = (Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER)
APART = (
    Account.ACTIVATIONS, Account.RECOMPUTED, Account.LOGITS, Account.FORWARD, Account.BACKWARD, Account.INPUTS,
    Account.BUFFERS, Account.WORKSPACE, Account.ENDS,
)  # fmt: skip
MOMENT = "resident states"


@dataclass(frozen=True, slots=True)
class Row:
    """One field of the page. Bytes: of one weight, of the fullest rank, of the whole model counted once; None where the
    field has none. `place`: where the rank's bytes lie."""

    field: str
    value: str
    each: float | None = None
    rank: int | None = None
    whole: int | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """The page: its rows, the least times of an update, and what the estimate does not count at all."""

    title: str
    rows: tuple[Row, ...]
    updates: tuple[Traffic, ...]
    uncounted: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; bytes, None where a field has none."""
        return {
            "title": self.title,
            "fields": [
                {
                    "field": one.field, "value": one.value, "bytes_per_parameter": one.each, "rank_bytes": one.rank,
                    "model_bytes": one.whole, "place": one.place,
                }
                for one in self.rows
            ],
            "update": [{"name": one.name, "place": one.place, "seconds": one.seconds} for one in self.updates],
            "not_counted": list(self.uncounted),
        }  # fmt: skip


def review(answer: Estimate) -> Review:
    """The page of an estimate's plan, of its fullest rank."""
    lines = resident(answer.ledger)
    rows = (
        *_counts(answer),
        _weights(answer, lines),
        _gradients(answer),
        _master(answer, lines),
        _optimizer(answer, lines),
        *_resident(answer, lines),
        _transient(answer),
        *_others(answer),
        *_apart(answer),
    )
    keys = answer.plan.keys()
    ranks = f"rank {answer.ledger.rank:,}" if answer.ledger.rank else "the fullest rank"
    title = f"{keys.get('name') or answer.model.family}: model states of {ranks} of {answer.ranks:,}"
    return Review(title, rows, beside(answer).traffic, answer.notes.uncounted)


def _counts(answer: Estimate) -> Iterator[Row]:
    model, count = answer.model, answer.parameters
    trained = "all trained" if count.trainable == count.total else f"{count.trainable:,} trained"
    yield Row("parameters", f"{count.total:,}, {trained}")
    shared = "; ".join(
        f"{name} is {other} ({size:,}): one storage, counted once" for name, other, size in _shared(model)
    )
    yield Row("shared parameters", shared or "none")
    experts = sum(weight.elements * number for weight, number in kinds(model) if weight.role is Role.EXPERT)
    if experts:
        taken = f"one token uses {count.active:,} of all parameters"
        yield Row(
            "experts", f"all are counted, {experts:,} parameters; {taken}, and the others have states all the same"
        )


def _shared(model: Model) -> Iterator[tuple[str, str, int]]:
    """Names that mean a storage which another has: of each its own, the other, elements."""
    for op in model.head.ops:
        if isinstance(op.spec, Linear) and op.spec.weight in model.embeddings:
            yield f"{op.name}.weight", op.spec.weight.name, op.spec.weight.elements
    for weight in (*model.embeddings, *model.head.weights):
        if weight.tied:
            yield weight.name, "another", weight.elements


def _how(plan: Plan, copy: Copy) -> str:
    """Replicated or divided, over how many ranks."""
    ranks = degrees(plan)
    parts = [f"{name} {size}" for name, size in (("tp", ranks.tp), ("pp", ranks.pp), ("ep", ranks.ep)) if size > 1]
    inner = f", a part of the model by {', '.join(parts)}" if parts else ""
    divided = copy in SPLITS[DIVIDES[plan.parallel.strategy]].divided
    if divided and ranks.shard > 1:
        return f"sharded over {ranks.shard:,} ranks{inner}"
    return f"a replica on each of {ranks.dp:,} data-parallel ranks{inner}" if ranks.dp > 1 else f"whole{inner}"


def _weights(answer: Estimate, lines: Sequence[tuple[Line, int]]) -> Row:
    plan = answer.plan
    stored = [
        (one.dtype.name, one.dtype.bytes_of(elements(one.dims)) * one.copies * count)
        for weight, count in kinds(answer.model)
        for one in tensors_of(weight, dtype_of(plan, weight))
    ]
    names = ", ".join(dict.fromkeys(name for name, _ in stored))
    whole = sum(size for _, size in stored)
    read = f"; products read {plan.precision.compute}" if mixes(plan) else ""
    return _row(
        "compute weights", f"{names}, {_how(plan, Copy.WEIGHTS)}{read}", (whole, answer.parameters.total), lines
    )


def _gradients(answer: Estimate) -> Row:
    """At the fullest moment of a step, since most are let go when the step is done."""
    plan, trainable = answer.plan, answer.parameters.trainable
    precision = plan.precision
    own = DTYPES[precision.gradients]
    kept = f"{own.name}, {_how(plan, Copy.GRADIENTS)}"
    size = own.bytes_of(trainable)
    if precision.main_gradients:
        kept += f"; a main gradient of its own in {precision.main_gradients}"
        size += DTYPES[precision.main_gradients].bytes_of(trainable)
    else:
        kept += "; no main gradient beside it"
    if plan.batch.accumulation > 1:
        kept += f"; {plan.batch.accumulation} micro-batches accumulate in it"
    steps = [one for one in answer.ledger.moments if in_steps(one.name)]
    held = max(
        (_of(answer, one.live, Account.GRADIENTS) for one in steps),
        key=lambda found: sum(line.unit * copies for line, copies in found),
        default=(),
    )
    away = tuple(pair for pair in answer.ledger.host if pair[0].account is Account.GRADIENTS)
    return _row("gradients", kept, (size, trainable), (*held, *away), Account.GRADIENTS)


def _master(answer: Estimate, lines: Sequence[tuple[Line, int]]) -> Row:
    plan, saved = answer.plan, saved_of(answer.plan, answer.model, answer.ledger)
    if not saved.master:
        why = (
            "the weights are in fp32 themselves"
            if plan.precision.weights == "fp32"
            else "the optimizer updates the weights"
        )
        return Row("master weights", f"none: {why}")
    value = f"{plan.precision.master}, {_how(plan, Copy.MASTER)}"
    return _row("master weights", value, (saved.master, answer.parameters.trainable), lines, Account.MASTER)


def _optimizer(answer: Estimate, lines: Sequence[tuple[Line, int]]) -> Row:
    plan, saved = answer.plan, saved_of(answer.plan, answer.model, answer.ledger)
    held = [line for line, _ in lines if line.account is Account.OPTIMIZER]
    kinds_of = dict.fromkeys(f"{line.name.partition(' ')[0].replace('_', ' ')} {line.dtype.name}" for line in held)
    states = ", ".join(list(kinds_of)[:SHOWN]) or "no states on the device"
    value = f"{plan.optimizer.name}: {states}; {_how(plan, Copy.FIRST)}"
    return _row("optimizer states", value, (saved.optimizer, answer.parameters.trainable), lines, Account.OPTIMIZER)


SHOWN = len(("first moment", "second moment", "scales", "tables"))


def _resident(answer: Estimate, lines: Sequence[tuple[Line, int]]) -> Iterator[Row]:
    kinds_of = (Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER)
    sizes = _by_place([pair for pair in lines if pair[0].account in kinds_of])
    for place, size in sizes.items():
        yield Row(
            MOMENT, "all of the above as the optimizer steps, as the allocator rounds them", None, size, None, place
        )


def _transient(answer: Estimate) -> Row:
    """The moment at which what states need for a while is largest."""
    best = max(
        answer.ledger.moments,
        key=lambda one: sum(line.unit * copies for line, copies in _of(answer, one.live, *TRANSIENT)),
    )
    held = _of(answer, best.live, *TRANSIENT)
    names = dict.fromkeys(line.account.value.replace("_", " ") for line, _ in held)
    value = f"{', '.join(names) or 'nothing is gathered, bucketed or cast'}; largest at {best.name}"
    return Row(
        "transient peak of states", value, None, sum(line.unit * copies for line, copies in held), None, "device"
    )


def _others(answer: Estimate) -> Iterator[Row]:
    """Models that act beside the one that is reviewed: what of their states is on the device as it is updated."""
    roles = answer.plan.roles
    sizes = {name: 0 for name, _ in (roles.given() if roles else ()) if name != POLICY}
    for number, copies in last_update(answer.ledger).live:
        line = answer.ledger.lines[number]
        if line.account in HELD and line.role != POLICY:
            sizes[line.role] = sizes.get(line.role, 0) + line.unit * copies
    if sizes:
        what = f"{', '.join(sizes)}: models of their own, in no row above; what is there as the optimizer steps"
        yield Row("other models", f"{what}: see `estimate`", None, sum(sizes.values()), None, "device")


def _apart(answer: Estimate) -> Iterator[Row]:
    """What is no model state: at the run's own peak, each from its own rules; and what no tensor accounts for."""
    moment = next(one for one in answer.ledger.moments if one.name == answer.peak.moment)
    sizes: dict[Account, int] = {}
    for entry in entries(answer.ledger, moment):
        if entry.line.account in APART:
            sizes[entry.line.account] = sizes.get(entry.line.account, 0) + entry.bytes
    what = ", ".join(account.value.replace("_", " ") for account in sizes)
    text = f"{what}; at the peak, {moment.name}: see `estimate`. A cache of keys and values is a moment of `evaluation`"
    yield Row("not in the states", text, None, sum(sizes.values()), None, "device")
    over = answer.device.expected - answer.peak.allocated.expected
    what = "what the allocator reserves besides, the process's context and communicators: see `estimate`"
    yield Row("allowance of the runtime", what, None, over, None, "device")


def _of(answer: Estimate, live: Sequence[tuple[int, int]], *accounts: Account) -> tuple[tuple[Line, int], ...]:
    lines = answer.ledger.lines
    return tuple((lines[number], copies) for number, copies in live if lines[number].account in accounts)


def _row(
    field: str,
    value: str,
    whole: tuple[int, int],
    lines: Sequence[tuple[Line, int]],
    account: Account = Account.WEIGHTS,
) -> Row:
    """A field with the rank's bytes of one account; `whole`: bytes of the whole model, and of how many parameters."""
    size, count = whole
    places = _by_place([pair for pair in lines if pair[0].account is account])
    each = size / count if count else None
    return Row(field, value, each, sum(places.values()), size, ", ".join(places))


def _by_place(lines: Sequence[tuple[Line, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for line, copies in lines:
        if line.unit:
            found[line.place.value] = found.get(line.place.value, 0) + line.unit * copies
    return found
