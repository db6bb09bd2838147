"""The estimate of a plan with roles: who lies on which devices, phase by phase, and which phase is the worst."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from trainledger.answer.check_acting import check_share
from trainledger.facts.device_rows import Device
from trainledger.facts.megatron import FRAMEWORKS as MEGATRON
from trainledger.facts.meshes import PP
from trainledger.facts.phases import (
    CRITIC,
    ENGINE,
    ITERATIONS,
    POLICY,
    ROLES,
    ROLLOUT,
    TRAINED,
    VALUED,
    Deed,
    Iteration,
    Phase,
    iteration_of,
    phases_of,
)
from trainledger.ledger.acting import Acts, Part, collected, parted, shifted
from trainledger.ledger.book import Book
from trainledger.ledger.layout import Layout
from trainledger.ledger.mega_acting import How, Silent, run_alone
from trainledger.ledger.megatron import fullest
from trainledger.ledger.opening import Job
from trainledger.ledger.rank import Ledger, rank_ledger, updates_of
from trainledger.ledger.reference import Pass, laid_out, one_pass, silent, standing
from trainledger.ledger.rollout import Rollout, generated, rollout_of
from trainledger.ledger.run import run_of
from trainledger.ledger.tensor_parallel import spread
from trainledger.ledger.updates import births, deaths
from trainledger.lines.line import Account
from trainledger.lines.moments import INIT, STEPS, in_part, part_of, what_of
from trainledger.lines.stream import Moment, Segment
from trainledger.model.build import model_of
from trainledger.model.program import Model
from trainledger.model.valued import valued
from trainledger.plan.acting import COLOCATED, Engine, Role
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import coordinates, mesh_of
from trainledger.plan.mesh import roles as classes_of
from trainledger.plan.roles import role_plan, sampled, scored
from trainledger.plan.schema import Plan

LOG_PROBS = "log-probs"
EMPTY = Ledger((), (), ())


@dataclass(frozen=True, slots=True)
class Share:
    """What one role holds in one phase on each device of its group (bytes)."""

    role: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One phase of the second iteration on one group of devices: at most so many bytes, by role, and whether it is the
    group's worst."""

    group: str
    phase: str
    moment: str
    allocated: int
    shares: tuple[Share, ...]
    worst: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Devices on which roles lie together: its name (of its roles), how many, the roles, their ledger."""

    name: str
    devices: int
    roles: tuple[str, ...]
    ledger: Ledger


def model_for(plan: Plan, name: str) -> Model:
    """The model of a role's plan: critics and reward models have a head of one number."""
    model = model_of(plan)
    return valued(model) if name in VALUED else model


def groups_of(
    plan: Plan, ledger: Ledger, architecture: str, device: Device | None, rank: int | None = None
) -> tuple[Group, ...]:
    """The groups of devices of a plan with roles, the policy's first; `ledger`: that of the policy alone, on this rank
    (None: the fullest)."""
    roles = dict(plan.roles.given()) if plan.roles else {}
    usable = device.usable_bytes if device else None
    shared = tuple(name for name in ROLES if name in roles and roles[name].placement == COLOCATED)
    made = _Maker(plan, roles, ledger, (architecture, usable))
    found = [Group(", ".join(shared), degrees(plan).world, shared, made.fullest(shared, rank))]
    for name in roles:
        if name not in shared:
            found.append(Group(name, int(roles[name].placement), (name,), made.fullest((name,), None)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Parts of roles as they are asked for; `on`: the architecture, and the device's usable bytes."""

    plan: Plan
    roles: Mapping[str, Role]
    ledger: Ledger
    on: tuple[str, int | None]
    rank: int | None = None

    def fullest(self, names: tuple[str, ...], rank: int | None) -> Ledger:
        """The ledger of these roles on a rank of their devices; None: on the one that holds most in its worst phase."""
        plans = [role_plan(self.plan, name) for name in names if name != ROLLOUT]
        staged = [own for own in plans if own.stack.framework in MEGATRON and degrees(own).pp > 1]
        ranks = sorted({at for own in staged for at in _ranks(own)})
        if rank is not None or not ranks:
            return replace(self, rank=rank).together(names)
        return max((replace(self, rank=at).together(names) for at in ranks), key=_most)

    def together(self, names: tuple[str, ...]) -> Ledger:
        """The ledger of these roles on the same devices."""
        parts = {name: self._part(name) for name in names}
        if POLICY in names and ROLLOUT in self.roles and ROLLOUT not in names:
            parts[ROLLOUT] = self._sent()
        main = self._own() if POLICY in names else EMPTY
        phases = phases_of(self.plan.task, self.plan.stack.framework, ROLLOUT in self.roles)
        roles = {name: self.roles[name] if name in names else Role() for name in parts}
        return collected(Acts(parts, roles, phases, at_once(self.plan)), main)

    def _own(self) -> Ledger:
        """The policy's ledger on the rank that is looked at."""
        if self.rank is None or self.rank == self.ledger.rank:
            return self.ledger
        own = role_plan(self.plan, POLICY)
        return rank_ledger(own, model_of(own), self.on[0], self.rank)

    def _sent(self) -> Part:
        """What an update of an engine on other devices takes where the policy is."""
        whole = self._rollout()
        return _engine(Rollout((), (), whole.update), False)

    def _rollout(self) -> Rollout:
        own, engine = role_plan(self.plan, ROLLOUT), self.roles[ROLLOUT].engine or Engine()
        made = rollout_of(own, role_plan(self.plan, POLICY), engine, model_of(own), self.on[1])
        check_share(engine, made, self.on[1])
        return made

    def _part(self, name: str) -> Part:
        own, role, architecture = role_plan(self.plan, name), scored(self.plan, name, self.roles[name]), self.on[0]
        if name == ROLLOUT:
            return _engine(self._rollout(), role.engine is not None and role.engine.sleep_level in ENGINE.kept)
        model = model_for(own, name)
        alone = self._silent(own, role, (name, model))
        if name not in TRAINED:
            weights = tuple(Segment(INIT, *run) for run in alone.weights)
            return _kept(own, Part(alone.lines, weights, {Deed.FORWARD: alone.forward}, named=alone.named))
        whole = self._own() if name == POLICY else _named(rank_ledger(own, model, architecture, self.rank), name)
        built, steps = parted(whole)
        more = (*whole.lines, *alone.lines)
        forward = tuple(one._replace(events=shifted(one.events, len(whole.lines))) for one in alone.forward)
        made = {Deed.TRAIN: steps, Deed.FORWARD: forward}
        named = tuple(line + len(whole.lines) for line in alone.named)
        if name != POLICY or ROLLOUT in self.roles:
            return _kept(own, Part(more, built, made, named=named))
        batch = role.forward_batch or sampled(own)
        copies = generated(own, spread(model, own), (batch, _iteration(own).caches))
        numbered = [(len(more) + at, count) for at, (_, count) in enumerate(copies)]
        made[Deed.GENERATE] = tuple(Segment("", *run) for run in (*births(numbered), *deaths(numbered)))
        return Part((*more, *(line for line, _ in copies)), built, made, named=named)

    def _silent(self, own: Plan, role: Role, who: tuple[str, Model]) -> Silent:
        """A role as it is only run: on its stage, where there are stages."""
        name, model = who
        if own.stack.framework not in MEGATRON:
            frozen, (layout, passed) = _forward(own, role, who, self.on[0])
            weights = standing(layout)
            return Silent(tuple(frozen.book.lines), weights, passed.segments, passed.named)
        stage = 0 if self.rank is None else coordinates(mesh_of(own), self.rank)[PP]
        word = LOG_PROBS if name == POLICY else name
        apart = name not in TRAINED and role.placement != COLOCATED
        how = How(name, word, role.forward_batch, name == POLICY, apart)
        return run_alone(own, model, (self.on[0], stage), how)


def _ranks(own: Plan) -> list[int]:
    """The first rank of every stage that may be the fullest."""
    stages = classes_of(mesh_of(own))
    return [stages[at].ranks[0].first for at in fullest(own, model_of(own))]


def _kept(own: Plan, part: Part) -> Part:
    """A role's part; Megatron-Core's buffers never leave, and its gradients are thrown away as they do."""
    if own.stack.framework not in MEGATRON:
        return part
    return part._replace(stays=(Account.BUFFERS, Account.BUCKETS), thrown=(Account.CACHE, Account.GRADIENTS))


def _most(ledger: Ledger) -> int:
    return max((one.allocated for one in ledger.moments), default=0)


def _forward(own: Plan, role: Role, who: tuple[str, Model], architecture: str) -> tuple[Job, tuple[Layout, Pass]]:
    """A role's forward without gradients, in the batches that it takes."""
    name, model = who
    if role.forward_batch is not None:
        batch = own.batch.model_copy(update={"micro_batch": role.forward_batch})
        own = own.model_copy(update={"batch": batch})
    job = Job(Book(), spread(model, own), run_of(own, architecture), lambda weight: False)
    alone = silent(job, job.model, name, word=LOG_PROBS if name == POLICY else "")
    stays = at_once(own)
    if stays:  # its models gather keys and values while they do not train
        software = replace(alone.run.software, caches=True)
        alone = replace(alone, run=replace(alone.run, software=software))
    layout = laid_out(own, alone, updates_of(own), None)
    return job, (layout, one_pass(layout, stays))


def _iteration(plan: Plan) -> Iteration:
    """The iteration of a plan with roles."""
    found = iteration_of(plan.task, plan.stack.framework)
    assert found is not None  # roles act in tasks that have one
    return found


def at_once(plan: Plan) -> bool:
    """Whether the trained roles of a plan with roles run in one function."""
    return _iteration(plan).together


def _engine(rollout: Rollout, kept: bool) -> Part:
    copies = (*rollout.weights, *rollout.pool, *rollout.update)
    lines = tuple(line for line, _ in copies)
    numbered = [(number, count) for number, (_, count) in enumerate(copies)]
    staying = len(copies) - len(rollout.update)
    built = tuple(Segment(INIT, *run) for run in births(numbered[:staying]))
    update = tuple(event for number, _ in numbered[staying:] for event in (number + 1,))
    gone = tuple(-event for event in update)
    deeds = {Deed.SYNC: (Segment("", (*update, *gone)),)}
    if rollout.pool:
        deeds[Deed.GENERATE] = (Segment("", ()),)
    return Part(lines, built, deeds, kept)


def _named(ledger: Ledger, name: str) -> Ledger:
    """The ledger of a role, which its lines' names begin with."""
    lines = (replace(line, name=f"{name}: {line.name}", role=name) for line in ledger.lines)
    return replace(ledger, lines=tuple(lines))


def rows_of(plan: Plan, groups: Sequence[Group]) -> tuple[PhaseRow, ...]:
    """Every phase of the second iteration on every group of devices, with the worst one of each."""
    return tuple(row for group in groups for row in _rows(plan, group))


def _rows(plan: Plan, group: Group) -> Iterator[PhaseRow]:
    engine = plan.roles is not None and plan.roles.rollout is not None
    mine = [*group.roles, *([ROLLOUT] if POLICY in group.roles else [])]
    found = {one.name for one in group.ledger.moments}
    phases = [
        one
        for one in phases_of(plan.task, plan.stack.framework, engine)
        if one.role in mine and (one.deed is Deed.TRAIN or in_part(STEPS[-1], one.name) in found)
    ]
    moments = [max(_moments(group.ledger, phase), key=lambda one: one.allocated) for phase in phases]
    worst = max((one.allocated for one in moments), default=0)
    for phase, moment in zip(phases, moments, strict=True):
        held = dict.fromkeys(group.roles, 0)
        for number, copies in moment.live:
            line = group.ledger.lines[number]
            held[line.role if line.role in held else POLICY] += line.unit * copies
        shares = tuple(Share(role, size) for role, size in held.items())
        yield PhaseRow(group.name, phase.name, moment.name, moment.allocated, shares, moment.allocated == worst)


def _moments(ledger: Ledger, phase: Phase) -> list[Moment]:
    """The moments of a phase: that of its name, or all of a step's that no other phase has."""
    step, others = STEPS[-1], [in_part(STEPS[-1], one.name) for row in ITERATIONS for one in row.phases]
    if phase.deed is not Deed.TRAIN:
        return [one for one in ledger.moments if one.name == in_part(step, phase.name)]
    mine = [one for one in ledger.moments if part_of(one.name) == step]
    critics = [one for one in mine if what_of(one.name).startswith(f"{CRITIC} ")]
    if phase.role == CRITIC:
        return critics
    return [one for one in mine if one not in critics and one.name not in others]
