"""What other tools' estimators print for the same input, number by number, and what they leave out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainledger.base.dims import elements
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.dtypes import BOOL, FP32
from trainledger.facts.estimators import LEFT_OUT, LOADING, STATES_TOO, ZERO2_STATES, ZERO3_STATES
from trainledger.facts.versions import NEWEST, at_least, parse_version
from trainledger.ledger.layout import FREQUENCIES
from trainledger.ledger.registered import Slot, slots_of
from trainledger.model.operations import Linear
from trainledger.model.program import Model

ZERO2, ZERO3, ACCELERATE = "deepspeed-zero2", "deepspeed-zero3", "accelerate"
TOOLS = (ZERO2, ZERO3, ACCELERATE)
PACKAGE = {ZERO2: "deepspeed", ZERO3: "deepspeed", ACCELERATE: "accelerate"}


@dataclass(frozen=True, slots=True)
class Counted:
    """What an estimator is given: parameters, those of the largest module, devices in all and per node; the largest
    layer and all of the model in fp32 with buffers (bytes; 0: not known)."""

    parameters: int
    largest: int = 0
    ranks: int = 1
    per_node: int = 1
    layer_bytes: int = 0
    total_bytes: int = 0

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return self.ranks // self.per_node


@dataclass(frozen=True, slots=True)
class TheirRow:
    """One row of an estimator: which options it is for, and sizes in bytes by column (None: not shown)."""

    options: str
    sizes: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Theirs:
    """An estimator's rows as its release prints them, what it leaves out, and its source."""

    tool: str
    release: str
    rows: tuple[TheirRow, ...]
    left_out: tuple[str, ...]
    source: str

    def to_dict(self) -> dict[str, Any]:
        """The rows as plain JSON values, sizes in bytes."""
        return {
            "as": self.tool,
            "release": self.release or "newest",
            "rows": [{"options": row.options, **dict(row.sizes)} for row in self.rows],
            "left_out": list(self.left_out),
            "source": self.source,
        }


def counted(model: Model, ranks: int, per_node: int) -> Counted:
    """What a model gives to an estimator. accelerate reads the base model, without a head; of encoders another class
    than is counted here, so that its sizes stay unknown."""
    slots = slots_of(model)
    modules: Counter[tuple[int, str]] = Counter()
    for slot in slots:
        modules[slot.at, _module(slot.weight.name)] += slot.size
    heads = [_own(op.spec) for op in model.head.ops if isinstance(op.spec, Linear)]
    given = Counted(sum(slot.size for slot in slots), max(*modules.values(), *heads, 0), ranks, per_node)
    if not model.causal:
        return given
    layer, total = _base_bytes(model, slots)
    return replace(given, layer_bytes=layer, total_bytes=total)


def _own(linear: Linear) -> int:
    """Elements of a linear layer's own parameters, shared ones too: a tied head is a module with the table of words."""
    return linear.weight.elements + (linear.bias.elements if linear.bias else 0)


def _base_bytes(model: Model, slots: Sequence[Slot]) -> tuple[int, int]:
    """The largest layer or single module of the base model, and all of it, in fp32 with buffers (bytes)."""
    base = model.embeddings[0].name.partition(".")[0] + "."
    parts: Counter[str] = Counter()
    for slot in slots:
        inside = slot.at > 0 and bool(slot.prefix)
        if inside or slot.weight.name.startswith(base):
            parts[f"layer {slot.at}" if inside else _module(slot.weight.name)] += FP32.bytes_of(slot.size)
    for one in model.buffers:
        count = elements(one.dims)
        parts[_module(one.name)] += count // LOADING.bools if one.dtype == BOOL else one.dtype.bytes_of(count)
    tables = 0
    if model.rotary:
        halves = [model.rotary.width(name) // len(FREQUENCIES) for name in model.rotary.sets]
        tables = FP32.bytes_of(sum(halves)) * len(FREQUENCIES)
    return max(parts.values()), sum(parts.values()) + tables


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def release_problems(tool: str, release: str) -> Iterator[Problem]:
    """What is wrong with a release of a tool that was asked for: only those that were read can be counted as."""
    package = PACKAGE.get(tool)
    if not release or package is None:
        return
    newest, have = NEWEST[package].version, parse_version(release)
    if have is None:
        fix = f"Write for example {newest}, or leave it out for that."
        yield Problem("--release", f"found {release!r}", f"a release of {package} is needed", fix)
    elif not at_least(newest, release):
        allowed = f"{newest} is the newest of {package} that was read"
        yield Problem("--release", f"found {release!r}", allowed, "Leave it out for that.")


def theirs(tool: str, given: Counted, release: str = "") -> Theirs:
    """What a tool prints; an unknown release counts as newest. Raises InputError for an unknown tool or input."""
    _check(tool, given)
    release = release if parse_version(release) else ""
    if tool == ZERO2:
        row = next(one for one in ZERO2_STATES if at_least(release or None, one.since))
        return Theirs(tool, release, tuple(_zero2(given, release)), LEFT_OUT, str(row.source))
    if tool == ZERO3:
        return Theirs(tool, release, tuple(_zero3(given)), LEFT_OUT, str(ZERO3_STATES.source))
    return Theirs(tool, release, tuple(_loading(given, release)), (*STATES_TOO, *LEFT_OUT), str(LOADING.source))


def _row(options: str, host: float, device: int) -> TheirRow:
    return TheirRow(options, (("cpu", int(host)), ("gpu", int(device))))


def _zero2(given: Counted, release: str) -> Iterator[TheirRow]:
    row = next(one for one in ZERO2_STATES if at_least(release or None, one.since))
    size, ranks = given.parameters, given.ranks
    host = size * max(row.host * ranks, row.least) * row.factor
    yield _row("offload_optimizer=cpu", host, row.offloaded * size)
    device = row.whole * size + int(row.divided * size / ranks)
    yield _row("offload_optimizer=none", size * row.host * given.per_node * row.factor, device)


def _zero3(given: Counted) -> Iterator[TheirRow]:
    row, size, share = ZERO3_STATES, given.parameters, 1 / given.nodes
    gathered = row.largest * given.largest
    each = row.unbuilt * given.per_node
    cases: tuple[tuple[str, str, int, int], ...] = (
        ("cpu", "cpu", row.both, gathered),
        ("none", "cpu", row.optimizer, gathered + int(row.weights * size / given.ranks)),
        ("none", "none", 0, gathered + int(row.divided * size / given.ranks)),
    )
    for param, optimizer, per_parameter, device in cases:
        for built in (1, 0):
            options = f"offload_param={param}, offload_optimizer={optimizer}, zero_init={built}"
            if not per_parameter:
                host = (given.largest if built else size) * row.unbuilt * given.per_node * row.factor
            elif built:
                host = size * per_parameter * share * row.factor
            else:
                host = size * max(each, per_parameter * share) * row.factor
            yield _row(options, host, device)


def _loading(given: Counted, release: str) -> Iterator[TheirRow]:
    training, newer = dict(LOADING.training), at_least(release or None, LOADING.since)
    for dtype, part in LOADING.parts:
        layer, total = given.layer_bytes // part, given.total_bytes // part
        times = training.get(dtype)
        adam = (times * given.total_bytes if times else None) if newer else LOADING.before * total
        yield TheirRow(dtype, (("largest_layer", layer), ("total", total), ("training_adam", adam)))


def _check(tool: str, given: Counted) -> None:
    if tool not in TOOLS:
        near = nearest(tool, TOOLS)
        fix = f"Did you mean {near}?" if near else ""
        raise InputError([Problem("--as", f"found {tool!r}", f"one of {', '.join(TOOLS)} is needed", fix)])
    problems: list[Problem] = []
    if given.parameters < 1:
        problems.append(Problem("--params", f"found {given.parameters}", "an integer of at least 1 is needed"))
    if given.per_node < 1 or given.ranks < 1 or given.ranks % max(given.per_node, 1):
        allowed = f"a divisor of the {given.ranks} ranks is needed"
        problems.append(Problem("--per-node", f"found {given.per_node}", allowed))
    if tool == ZERO3 and not given.largest:
        problems.append(Problem("--largest", "not given", f"{tool} asks for the parameters of the largest module"))
    if given.largest > given.parameters:
        found = f"found {given.largest:,} of {given.parameters:,} parameters"
        problems.append(Problem("--largest", found, "a module has at most those of the whole model"))
    if tool == ACCELERATE and not given.total_bytes:
        problems.append(Problem("PLAN", "no decoder given", f"{tool} reads the modules of a decoder: a plan is needed"))
    if problems:
        raise InputError(problems)
