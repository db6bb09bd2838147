"""Segments of a Megatron-Core run, put together in the order of the pipeline's schedule.

Source: megatron/core/pipeline_parallel/schedules.py (0.19.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from trainledger.ledger.mega_defer import drained, kept_lines, limit_of, put_off
from trainledger.ledger.mega_engine import dummies
from trainledger.ledger.mega_flow import Flow, Laned
from trainledger.ledger.mega_once import TABLES, grown, once, regrown, tables
from trainledger.ledger.mega_order import order_of
from trainledger.ledger.mega_passes import Pass
from trainledger.ledger.mega_run import Rank
from trainledger.ledger.updates import Runs, births
from trainledger.ledger.woven import with_workspace
from trainledger.lines.actions import Action, Kind
from trainledger.lines.moments import FORWARD, in_part
from trainledger.lines.stream import Events, Segment, net
from trainledger.plan.degrees import degrees

BACKWARD = "backward"  # the thread of autograd's engine


class Composer:
    """The segments of a run as they are put together."""

    def __init__(self, rank: Rank, workspace: int, each: bool) -> None:
        self.rank, self.workspace, self.each = rank, workspace, each
        self.standing = dummies(rank.job, rank.chunks)  # made in the first backward, and kept
        first = once(rank)
        # of rotary angles, made after the embedding
        self.tables = next(([line] * count for line, count in first if rank.job.book.lines[line].name == TABLES), [])
        self.turned: set[int] = set()  # chunks that have made theirs
        self.shared, self.larger = grown(rank)
        self.outgrown = self.shared
        later = {*self.tables, *self.shared, *(line for line, _ in self.larger)}
        self.once = [one for one in first if one[0] not in later]
        self.segments: list[Segment] = []
        self.same: dict[Events, Events] = {}  # equal runs of events are one, so that they are looked at once
        self.ready: set[str] = set()
        self.piped = degrees(rank.plan).pp > 1
        after = degrees(rank.plan).pp - 1 - rank.stage  # stages: a forward for each comes before the first backward
        self.warm = 0 < (rank.plan.batch.accumulation or 1) <= after  # no output is exchanged for a gradient
        self.left: set[int] = set()  # chunks whose last backward left a graph behind
        self.before: tuple[object, ...] = ()  # with what the last step began
        self.last = slice(0)  # its segments

    def add(self, moment: str, runs: Runs) -> None:
        """Runs of events of a moment, which is there even if nothing happens in it."""
        self.segments += [Segment(moment, ())] * (not runs)
        self.segments += [Segment(moment, self.same.setdefault(one, one), repeat) for one, repeat in runs]

    def pass_on(self, moment: str, events: Laned) -> None:
        """What passes between stages in a moment."""
        self.segments += [Segment(moment, ())] * (not events)
        for lane, group in groupby(events, key=itemgetter(1)):
            own = tuple(event for event, _ in group)
            self.segments.append(Segment(moment, self.same.setdefault(own, own), 1, lane))

    def lane(self, action: Action) -> int:
        """The lane of a micro-batch in a chunk, where others are in flight."""
        return 1 + action.micro_batch * len(self.rank.chunks) + action.chunk if self.piped else 0

    def take(self, moment: str, segments: tuple[Segment, ...], made: Pass, thread: str, action: Action) -> None:
        """A pass through a chunk, with what the first makes: cuBLAS's workspace, what stands in for gradients."""
        found = list(segments)
        if self.tables and action.chunk not in self.turned:
            self.turned.add(action.chunk)
            here = self.rank.chunks[action.chunk]
            count = tables(self.rank.job, here)
            found.insert(int(here.first), Segment(moment, tuple(line + 1 for line in self.tables[:count])))
            del self.tables[:count]
        if thread == BACKWARD and self.standing:
            self.add(moment, births(self.standing))
            self.standing = []
        multiplies = thread not in self.ready and any(made.products.values())
        if multiplies and any(made.products.get(one.events) for one in found):
            self.ready.add(thread)
            found = with_workspace(found, made.products, self.workspace, self.shared)
            self.shared = []
        found, self.larger, self.outgrown = regrown(self.rank.job, found, self.larger, self.outgrown)
        lane = self.lane(action)
        self.segments += [Segment(moment, one.events, one.repeat, lane) for one in found]

    def run(self, step: str, flow: Flow, passes: list[Pass], firsts: list[Pass]) -> None:
        """Every micro-batch of a step. One that begins as the one before it did, which has its name, is that one."""
        waits = bool(self.standing or self.shared), len(self.tables), len(self.larger)
        before = step, flow.state, set(self.ready), set(self.left), waits
        start = len(self.segments)
        if before == self.before:
            self.segments += self.segments[self.last]
            return
        self._run(step, flow, passes, firsts)
        self.before, self.last = before, slice(start, len(self.segments))

    def _run(self, step: str, flow: Flow, passes: list[Pass], firsts: list[Pass]) -> None:
        """Every micro-batch of a step, in the order of the schedule; `firsts`: each chunk's first. Interleaved, a
        backward's gradient is received in the exchange before the forward that it follows."""
        order, chunks = order_of(self.rank.plan, self.rank.stage), self.rank.chunks
        later: set[tuple[bool, int]] = set()
        late = [(at, kept_lines(self.rank.job.book, made)) for at, made in enumerate(passes) if chunks[at].last]
        left = limit_of(self.rank.plan) if late else 0
        waiting: Events = ()
        for at, action in enumerate(order):
            turn = action.kind is Kind.FORWARD, action.chunk
            made = (passes if turn in later else firsts)[action.chunk]
            later.add(turn)
            if action.kind is Kind.FORWARD:
                moment, following = self.moment(step, action), order[at + 1]
                ahead = not flow.plain and at and following.kind is not Kind.FORWARD
                received = flow.before(following) if ahead and order[at - 1].kind is not Kind.FORWARD else ()
                self.pass_on(moment, (*flow.entered(action), *received))
                self.take(moment, self._passed(action, made), made, FORWARD, action)
                self.pass_on(moment, flow.made(action))
                continue
            moment = self.moment(step, action)
            there = not flow.plain and at > 1 and order[at - 1].kind is Kind.FORWARD
            received = () if there and order[at - 1 - 1].kind is not Kind.FORWARD else flow.before(action)
            begun = flow.begun()
            # names are bound anew before a gradient is received, but where it is exchanged for the output just made
            early = self.warm or (at and order[at - 1].kind is not Kind.FORWARD)
            self.pass_on(moment, (*begun, *received) if early else (*received, *begun))
            if left and chunks[action.chunk].last:
                left -= 1
                made = put_off(made, late[0][1])
                waiting += drained(late[0][1])
                flow.listed.append(action)
            self.take(moment, self._passed(action, made), made, BACKWARD, action)
            self.pass_on(moment, flow.left(action))
        self.pass_on(self.moment(step, order[-1]), flow.ended())
        self.add(self.moment(step, order[-1]), [(waiting, 1)])

    def moment(self, step: str, action: Action) -> str:
        """The moment of an action: all forwards or backwards of a step together, or one for each."""
        way = "forward" if action.kind is Kind.FORWARD else "backward"
        if not self.each:
            return in_part(step, way)
        part = f" through chunk {action.chunk}" if len(self.rank.chunks) > 1 else ""
        return in_part(step, f"{way} of micro-batch {action.micro_batch}{part}")

    def held(self, flow: Flow, passes: Sequence[Pass]) -> Events:
        """Deaths of what chunks hold once the steps are over until they are given another input: the last one with its
        gradient, and a graph that a backward left."""
        parked = (event for chunk in flow.parked for event in flow.input_gone(chunk))
        graphs = (net(passes[at].forward) - net(passes[at].after[0]) for at in sorted(self.left))
        return (*parked, *(-line - 1 for graph in graphs for line in graph.elements()))

    def _passed(self, action: Action, made: Pass) -> tuple[Segment, ...]:
        """The segments of an action, which lets go of a graph that the chunk's last backward left."""
        ahead, there = action.kind is Kind.FORWARD, action.chunk in self.left
        if ahead:
            self.left.discard(action.chunk)
            return made.after[0] if there else made.forward
        self.left.add(action.chunk)
        return made.after[1] if there else made.backward
