"""Roles on the same devices put together: one ledger whose moments are the phases of an iteration and the steps.

Every role is a part: lines of its own, how it is built, and what it does in a phase. Between phases its states leave
the device, or come back, as the plan says. Phases run once before the first optimizer step and once before the second,
when the optimizer's states lie there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainledger.facts.phases import POLICY, ROLLOUT, TRAINED, Deed, Phase
from trainledger.ledger.beyond import MOMENTS
from trainledger.ledger.rank import Ledger
from trainledger.ledger.trained_together import Parted, parted_step, returning, together
from trainledger.lines.line import Account, Duty, Line, Place
from trainledger.lines.moments import INIT, STEPS, in_part, part_of, what_of
from trainledger.lines.stream import EMPTY, Events, Segment, fold
from trainledger.plan.acting import IDLE, Role

LEAVING = (Account.WEIGHTS, Account.MASTER, Account.OPTIMIZER, Account.GRADIENTS, Account.BUCKETS, Account.BUFFERS)
UPDATED = (Account.MASTER, Account.OPTIMIZER)
READ = (Account.WEIGHTS, Account.BUFFERS)  # what a forward, and an update of an engine, needs of a model
ENGINES = (*LEAVING, Account.CACHE, Account.WORKSPACE)
AWAKE, ASLEEP = "resident", "asleep"
# what is away, where it is not all
AWAY: Mapping[str, tuple[Account, ...]] = {
    AWAKE: (),
    "weights-offloaded": tuple(one for one in LEAVING if one not in UPDATED),
    "optimizer-offloaded": UPDATED,
}


class Part(NamedTuple):
    """One role: its lines; segments that build it; by what it does, segments of it (of training: with the step's name
    in their moments); whether states are kept in the host's memory while they are away; which of its lines never leave
    (`stays`), and which are thrown away when they do; what its forward leaves named until the phases before training
    are over."""

    lines: tuple[Line, ...]
    built: tuple[Segment, ...]
    deeds: Mapping[Deed, tuple[Segment, ...]]
    kept: bool = True
    stays: tuple[Account, ...] = ()
    thrown: tuple[Account, ...] = (Account.CACHE,)
    named: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Acts:
    """What is put together: parts by role, what the plan says of each role, the phases in order; whether the trained
    roles run in one function."""

    parts: Mapping[str, Part]
    roles: Mapping[str, Role]
    phases: tuple[Phase, ...]
    at_once: bool = False

    def away(self, role: str, phase: Phase) -> tuple[Account, ...]:
        """What of a role is off the device in a phase. While it runs forward, or is read to update the engine, a model
        is there without what only its training needs; an engine that is updated has no cache yet."""
        idle = self.accounts(role, self.idle(role))
        if role == phase.role or (phase.deed is Deed.SYNC and role == POLICY):
            read = (Account.WEIGHTS,) if role == ROLLOUT else READ
            reads = phase.deed in (Deed.FORWARD, Deed.SYNC)
            return tuple(one for one in idle if one not in read) if reads else ()
        return self.accounts(role, self.roles[role].states.get(phase.name, self.idle(role)))

    def accounts(self, role: str, state: str) -> tuple[Account, ...]:
        """What of a role is off the device in a state."""
        whole = ENGINES if role == ROLLOUT else LEAVING
        return tuple(one for one in AWAY.get(state, whole) if one not in self.parts[role].stays)

    def idle(self, role: str) -> str:
        """Where a role's states are while it does not act."""
        given = self.roles[role]
        sleeps = given.engine is not None and given.engine.sleep_level is not None
        return given.states.get(IDLE, ASLEEP if sleeps else AWAKE)


class Stage:
    """The lines and segments as they are put together; by role, lines alive and lines that are away; lines of the
    host's memory."""

    __slots__ = ("acts", "alive", "away", "first", "hosted", "lines", "segments")

    def __init__(self, acts: Acts) -> None:
        self.acts = acts
        self.lines: list[Line] = []
        self.segments: list[Segment] = []
        self.first: dict[str, int] = {}
        self.alive: dict[str, Counter[int]] = {}
        self.away: dict[str, Counter[int]] = {}
        self.hosted: dict[int, int] = {}

    def build(self) -> None:
        """Every role in turn; an engine finds the others as they are while it generates."""
        generating = next((one for one in self.acts.phases if one.deed is Deed.GENERATE), None)
        for role, part in self.acts.parts.items():
            if role == ROLLOUT and generating is not None:
                for other in self.first:
                    self._leave(other, INIT, self.acts.away(other, generating))
            self.first[role] = len(self.lines)
            self.alive[role], self.away[role] = Counter(), Counter()
            self.lines += part.lines
            self.play(role, part.built)
            self._leave(role, INIT, self.acts.accounts(role, self.acts.idle(role)))

    def play(self, role: str, segments: Iterable[Segment], moment: str = "") -> None:
        """Segments of a role, at the moment named or at their own."""
        shift = self.first[role]
        for name, events, repeat, _ in segments:
            own = shifted(events, shift)
            self.segments.append(Segment(moment or name, own, repeat))
            for event in own:
                if event:
                    self.alive[role][abs(event) - 1] += repeat if event > 0 else -repeat

    def train(self, number: int, phase: Phase) -> None:
        """One step of both trained roles in one function, after what made their batch has returned."""
        steps = [self._steps(step) for step in STEPS]
        own = next(iter(steps[number].values())).turns[0].micro[0]
        for role, part in self.acts.parts.items():
            self.play(role, [Segment(self.segments[-1].moment, tuple(-line - 1 for line in part.named))])
        self.settle(phase, own.moment)
        for role, one in together(steps[number]):
            self.play(role, (one,), _called(role, one))
        for following in steps[number + 1 : number + 2]:
            for role, one in returning(following):
                self.play(role, (one,), self.segments[-1].moment)

    def _steps(self, step: str) -> dict[str, Parted]:
        trained = {role: self.acts.parts[role].deeds[Deed.TRAIN] for role in TRAINED if role in self.acts.parts}
        return {
            role: parted_step([one for one in segments if part_of(one.moment) == step])
            for role, segments in trained.items()
        }

    def settle(self, phase: Phase, moment: str) -> None:
        """States leave first, at the end of the moment before, then others come."""
        for role in self.acts.parts:
            self._leave(role, self.segments[-1].moment, self.acts.away(role, phase))
        for role in self.acts.parts:
            self._come(role, moment, self.acts.away(role, phase))

    def _leave(self, role: str, moment: str, accounts: Sequence[Account]) -> None:
        gone = {line: n for line, n in self.alive[role].items() if n > 0 and self.lines[line].account in accounts}
        if not gone:
            return
        self.away[role].update(gone)
        self._move(role, moment, gone, -1)
        self._empty(moment)
        part = self.acts.parts[role]
        if part.kept:
            kept = {line: n for line, n in gone.items() if self.lines[line].account not in part.thrown}
            self.hosted |= {line: max(n, self.hosted.get(line, 0)) for line, n in kept.items()}

    def _empty(self, moment: str) -> None:
        """Trainers and engines give back what the allocator caches, but for the one that trains two roles at once."""
        if not self.acts.at_once:
            self.segments.append(Segment(moment, (EMPTY,)))

    def _come(self, role: str, moment: str, away: Sequence[Account]) -> None:
        back = {line: n for line, n in self.away[role].items() if self.lines[line].account not in away}
        for line in back:
            del self.away[role][line]
        if back:
            self._empty(self.segments[-1].moment)
        self._move(role, moment, back, 1)

    def _move(self, role: str, moment: str, lines: Mapping[int, int], sign: int) -> None:
        for line, count in sorted(lines.items()):
            self.segments.append(Segment(moment, (sign * (line + 1),), count))
            self.alive[role][line] += sign * count


LEFT = "waits here while other roles act"


def shifted(events: Events, shift: int) -> Events:
    """Events of lines whose numbers begin later."""
    return tuple(event + shift if event > 0 else event - shift if event else 0 for event in events)


def _called(role: str, segment: Segment) -> str:
    """The moment of a trained role's segment: the policy's own, or with the role's name in it."""
    step, what = part_of(segment.moment), what_of(segment.moment)
    return segment.moment if role == POLICY else in_part(step, f"{role} {what}")


def collected(acts: Acts, main: Ledger) -> Ledger:
    """One ledger of all parts, with the ranks of the policy's own. Moments of a phase are called by its name."""
    stage = Stage(acts)
    stage.build()
    for number, step in enumerate(STEPS):
        for phase in acts.phases:
            if phase.role not in acts.parts or phase.deed not in acts.parts[phase.role].deeds:
                continue
            moment, part = in_part(step, phase.name), acts.parts[phase.role]
            train = phase.deed is Deed.TRAIN
            if train and acts.at_once:
                if phase.role == POLICY:
                    stage.train(number, phase)
                continue
            own = [one for one in part.deeds[phase.deed] if not train or part_of(one.moment) == step]
            stage.settle(phase, own[0].moment if train and phase.role == POLICY else moment)
            if train and phase.role == POLICY:
                stage.play(POLICY, own)
            elif train:
                for one in own:
                    stage.play(phase.role, (one,), _called(phase.role, one))
            else:
                stage.play(phase.role, own, moment)
    lines, host = tuple(stage.lines), tuple(_hosted(stage))
    moments = fold(lines, stage.segments)
    return replace(main, lines=lines, moments=moments, segments=tuple(stage.segments), host=(*main.host, *host))


def _hosted(stage: Stage) -> Iterable[tuple[Line, int]]:
    for number, count in stage.hosted.items():
        line = stage.lines[number]
        use = line.use._replace(duty=Duty.PARKED)
        yield replace(line, place=Place.HOST, why=LEFT, use=use), count


def parted(ledger: Ledger) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """A trained role's segments: of building, and of the steps."""
    built = tuple(one for one in ledger.segments if part_of(one.moment) not in (*STEPS, *MOMENTS))
    steps = tuple(one for one in ledger.segments if part_of(one.moment) in STEPS)
    return tuple(one._replace(moment=INIT) for one in built), steps
