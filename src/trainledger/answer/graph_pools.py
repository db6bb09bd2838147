"""What CUDA graphs of parts of layers take of the device beyond the steps that run before they are captured.

Graphs keep a pool of their own, which nothing else uses between replays: it is as large as what the captured parts
hold at their fullest, and all else is at its fullest at another time. What was cached before is given back as each
capture begins. Replays read from inputs that stay.
Source: facts/cuda_graphs.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainledger.base.sources import Basis
from trainledger.facts.cuda_graphs import ATTENTION, GRAPHS, LAYER
from trainledger.facts.dtypes import BF16
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.facts.meshes import PP
from trainledger.facts.overheads import Interval
from trainledger.ledger.mega_order import order_of
from trainledger.ledger.mega_run import chunks_of
from trainledger.ledger.rank import Ledger
from trainledger.lines.actions import Kind
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import highest
from trainledger.plan.mesh import coordinates, mesh_of
from trainledger.plan.schema import Plan

PREFIXES = ("decoder.layers.*.", "mtp.layers.*.", "gradient of ")
CAPTURED = (Account.ACTIVATIONS, Account.BACKWARD)


def graph_pools(plan: Plan, ledger: Ledger) -> tuple[Interval, ...]:
    """The bytes as an interval: nothing where no part of a layer is captured. None of them comes before the capture,
    and a run may end, or its largest step be over, before it."""
    modules = captured(plan)
    if not modules:
        return ()
    units = [line.unit for line in ledger.lines]
    within = [_within(line, modules) for line in ledger.lines]
    parts = [unit if there else 0 for unit, there in zip(units, within, strict=True)]
    others = [0 if there else unit for unit, there in zip(units, within, strict=True)]
    apart = highest(ledger.segments, parts) + highest(ledger.segments, others) - highest(ledger.segments, units)
    most = apart + inputs(plan, ledger)
    return (Interval(0, most, most, "B", GRAPHS.source, Basis.COUNTED),)


def captured(plan: Plan) -> tuple[str, ...]:
    """The modules of a layer that graphs capture, as far as they are known."""
    options = plan.stack.options
    if plan.stack.framework not in FRAMEWORKS or options.get(GRAPHS.kind) not in GRAPHS.kinds:
        return ()
    parts = _parts(plan)
    return tuple(dict.fromkeys(one for part in parts for one in GRAPHS.scopes.get(part, ()))) if parts else LAYER


def inputs(plan: Plan, ledger: Ledger) -> int:
    """Bytes of the inputs that stay: for each layer of a micro-batch in flight its hidden states and, where attention
    is captured, a mask."""
    if plan.stack.options.get(GRAPHS.kind) != GRAPHS.static:
        return 0
    ranks, keys, parts = plan.parallel, plan.keys(), _parts(plan)
    length = plan.batch.sequence // ranks.cp
    hidden = BF16.bytes_of(length // (ranks.tp if ranks.sp else 1) * plan.batch.micro_batch * int(keys["hidden_size"]))
    masked = not parts or ATTENTION in parts
    mask = plan.batch.micro_batch * length * plan.batch.sequence if masked else 0
    return max(_in_flight(plan, ledger)) * (hidden + mask)


def _in_flight(plan: Plan, ledger: Ledger) -> Iterator[int]:
    """Layers in flight after each action; one micro-batch is captured where there is no pipeline."""
    stage = 0 if ledger.rank is None else coordinates(mesh_of(plan), ledger.rank)[PP]
    layers = [len(one.layers) + one.further for one in chunks_of(plan, int(plan.keys()["num_hidden_layers"]), stage)]
    if plan.parallel.pp == 1:
        yield sum(layers)
        return
    held = 0
    for action in order_of(plan, stage):
        held += layers[action.chunk] * (1 if action.kind is Kind.FORWARD else -1)
        yield held


def _parts(plan: Plan) -> tuple[str, ...]:
    given = next((plan.stack.options[name] for name in GRAPHS.parts if plan.stack.options.get(name)), ())
    names: Iterable[str] = str(given).split() if isinstance(given, str) else (str(one) for one in given)
    return tuple(one for one in names if one not in GRAPHS.whole)


def _within(line: Line, modules: tuple[str, ...]) -> bool:
    name = line.name
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return line.account in CAPTURED and any(name == one or name.startswith((f"{one}.", f"{one}:")) for one in modules)
