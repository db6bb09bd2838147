"""Blocks that were let go of and wait for a communicator: nothing else may use them before the device is done.

What a ring sends and receives is recorded on the streams that exchange it. The host goes on while the device works, and
each layer that it is ahead has asked for buffers of its own by then.
Source: facts/launches.py.
"""

from __future__ import annotations

from collections import defaultdict

from trainledger.base.sources import Basis
from trainledger.facts.launches import AHEAD
from trainledger.facts.meshes import PP
from trainledger.facts.overheads import Interval
from trainledger.ledger.mega_run import chunks_of
from trainledger.ledger.rank import Ledger
from trainledger.lines.line import Duty, Line
from trainledger.plan.mesh import coordinates, mesh_of
from trainledger.plan.schema import Plan


def waiting(plan: Plan, ledger: Ledger) -> Interval | None:
    """Their bytes as an interval, None where nothing is exchanged so: none where the host is never ahead, else those
    of all layers whose launches may wait, as a forward ends."""
    sent = defaultdict[str, list[Line]](list)
    for line in ledger.lines:
        if line.use.duty is Duty.SENT:
            sent[line.name.rpartition(": ")[0]].append(line)
    if not sent:
        return None
    stage = 0 if ledger.rank is None else coordinates(mesh_of(plan), ledger.rank)[PP]
    chunks = chunks_of(plan, int(plan.keys()["num_hidden_layers"]), stage)
    layers = max(len(chunk.layers) + chunk.further for chunk in chunks)
    most = max(sum(line.unit for line in lines) * min(layers, _ahead(len(lines))) for lines in sent.values())
    return Interval(0, most, most, "B", AHEAD.source, Basis.ASSUMED)


def _ahead(exchanges: int) -> int:
    """Layers that the host is ahead by at most; `exchanges` of one layer: a ring's steps but the last."""
    return AHEAD.launches // (AHEAD.step * (exchanges + 1) + AHEAD.rest)
