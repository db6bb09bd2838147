"""Whole layers whose saved tensors go to the host: Transformer Engine's offloading of the first of a model's layers.

Of L layers the first n go. A layer's tensors leave the device as the forward of the (L - n)th layer after it begins, so
that the last of them leave with the last layer's, and are all there again as soon as the backward of the one that comes
(L - n) before it has ended; they stay until its own has. So the device holds L - n layers at the end of forward.
Source: transformer_engine/pytorch/cpu_offload.py, DefaultOffloadSynchronizer, OffloadableLayerState (2.18).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from trainledger.base.dims import elements
from trainledger.facts.megatron_offload import LAYERS
from trainledger.ledger.blocks import Walked
from trainledger.ledger.host import Lines, host_line
from trainledger.ledger.mega_left import shifted
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Events


class Hosted(NamedTuple):
    """A chunk's layers with what comes and goes, and lines of the host, with their copies."""

    layers: list[Walked]
    lines: Lines


def hosted(layers: Sequence[Walked], count: int, lines: Sequence[Line], hidden: int) -> Hosted:
    """The layers, of which the first `count` go to the host. `hidden`: the line of what passes between layers."""
    gone = [_gone(layers[at], lines, hidden) for at in range(count)]
    made = [_kept(one, gone[at]) if at < count else one for at, one in enumerate(layers)]
    stays = len(layers) - count
    for at, which in enumerate(gone):
        leaves, back = stays + at, stays + at - 1
        made[leaves] = _ahead(made[leaves], tuple(-line - 1 for line in which))
        made[back] = _behind(made[back], tuple(line + 1 for line in which))
    total = Counter(line for which in gone for line in which)
    return Hosted(made, tuple((_line(lines[line]), copies) for line, copies in total.items()))


def _gone(walked: Walked, lines: Sequence[Line], hidden: int) -> tuple[int, ...]:
    """Lines of large tensors that are there once the layer has run forward: its input, where it is kept, and not its
    output."""
    net: Counter[int] = Counter()
    for event in walked.forward:
        net[abs(event) - 1] += 1 if event > 0 else -1
    net[hidden] = int(walked.keeps_input)
    return tuple(line for line, copies in net.items() for _ in range(copies) if _large(lines[line]))


def _large(line: Line) -> bool:
    return elements(line.dims) >= LAYERS.least


def _kept(walked: Walked, gone: tuple[int, ...]) -> Walked:
    """A layer whose tensors were fetched: whoever fetched them holds them until its backward has ended."""
    left, events, last = Counter(gone), list[int](), walked.products[1]
    first = last
    for at, event in enumerate(walked.backward):
        if event < 0 and left[-event - 1]:
            left[-event - 1] -= 1
            first -= at < last
        else:
            events.append(event)
    died = tuple(-line - 1 for line in (Counter(gone) - left).elements())
    return replace(walked, backward=(*events, *died), products=(walked.products[0], first))


def _ahead(walked: Walked, events: Events) -> Walked:
    """The layer after whose start in forward these events come."""
    first, last = walked.products
    return replace(walked, forward=(*events, *walked.forward), products=(first and first + len(events), last))


def _behind(walked: Walked, events: Events) -> Walked:
    """The layer with whose backward these events come first."""
    first, last = walked.products
    made = replace(walked, backward=(*events, *walked.backward), products=(first, last and last + len(events)))
    return shifted(made, len(events))


def _line(line: Line) -> Line:
    made = host_line(Account.ACTIVATIONS, line.name, elements(line.dims), line.dtype, True)
    return replace(made, dims=line.dims, source=LAYERS.source)
