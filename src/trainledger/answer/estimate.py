"""The estimate of a plan: the fullest rank's ledger, its peak in three amounts, the verdict, what was assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from trainledger.allocator.conf import Conf, conf_of
from trainledger.allocator.replay import Smallest
from trainledger.answer.acting import Group, groups_of
from trainledger.answer.bands import Band, Outside, Peak, largest, peaks_of, replayed_over, scaled, spared, without
from trainledger.answer.bounded import least_of, smallest_of, within
from trainledger.answer.budgets import asked, budgets_of, folded
from trainledger.answer.check import check, check_model
from trainledger.answer.check_acting import acts
from trainledger.answer.notes import Notes, notes_of, states_note
from trainledger.answer.notes_megatron import stage_note
from trainledger.answer.replayed import Replayed, replayed
from trainledger.answer.stages import Stage, fullest, stages_of
from trainledger.answer.stages import peaks as peaks_over
from trainledger.answer.verdict import Verdict, judge, worst
from trainledger.base.units import format_size
from trainledger.facts.device_rows import Device
from trainledger.facts.devices import device_from
from trainledger.facts.kernels import REFERENCE
from trainledger.ledger.beyond import in_steps
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.lines.line import Account
from trainledger.model.build import model_of
from trainledger.model.counts import active, total, trainable, tuned
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees, global_batch
from trainledger.plan.lengths import at_longest
from trainledger.plan.roles import role_plan
from trainledger.plan.schema import Plan

UNKNOWN = ("", "unknown")  # what a device of the user's own says of its architecture


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts: all, trained, and those that one token's forward uses."""

    total: int
    trainable: int
    active: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a plan before it runs. `peak` is over building and steps, `steps` over whole steps only.
    `groups`: of a plan with roles, the devices that they lie on, the policy's first, whose ledger this is."""

    plan: Plan
    model: Model
    parameters: Parameters
    ledger: Ledger
    peak: Peak
    steps: Peak
    device: Band
    verdict: Verdict
    ranks: int
    global_batch: int
    notes: Notes
    groups: tuple[Group, ...] = ()

    @property
    def architecture(self) -> str:
        """The architecture whose kernels were counted: the device's, or the reference where the plan names none."""
        return architecture_of(device_of(self.plan))


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plan before any replay: as it was given, and at the longest of its samples, with its model, its device, the
    architecture whose kernels are counted, and the ledger of one rank."""

    given: Plan
    plan: Plan
    model: Model
    device: Device | None
    architecture: str
    ledger: Ledger
    rank: int | None = None

    @property
    def usable(self) -> int | None:
        """Bytes of the device that the run may take, where there is a device."""
        return self.device.usable_bytes if self.device else None

    @property
    def trained(self) -> int:
        """How many weights of the whole model are trained."""
        if self.plan.adapter:
            return tuned(self.model)
        return 0 if self.plan.trainable == "none" else trainable(self.model)

    @property
    def least(self) -> Band:
        """The least that the device needs: the largest moment's live tensors, with nothing lost between them."""
        plan, moments = self.plan, self.ledger.moments
        live = scaled(largest(moments).allocated, replayed_over(plan).reserved)
        sure = without(live, spared(self.ledger.lines, moments))
        return Outside.of(self.architecture, plan, self.ledger).above(sure)


def drawn(plan: Plan, rank: int | None = None) -> Drawn:
    """A resolved plan's ledger: of the fullest rank, or of the one asked for where ranks differ.

    Raises InputError naming every key that this version cannot estimate, or that the model cannot have.
    """
    given, plan = plan, at_longest(plan)
    check(plan)
    model = model_of(plan)
    check_model(plan, model)
    device = device_of(plan)
    architecture = architecture_of(device)
    return Drawn(given, plan, model, device, architecture, rank_ledger(plan, model, architecture, rank), rank)


def estimate(plan: Plan, rank: int | None = None) -> Estimate:
    """The estimate of a resolved plan: of the fullest rank, or of the one asked for where ranks differ.

    Where the plan says how long samples are, it is that of the longest. Raises InputError naming every key that this
    version cannot estimate, or that the model cannot have.
    """
    return estimated(drawn(plan, rank))


def estimated(of: Drawn) -> Estimate:
    """The estimate of a plan whose ledger is there already."""
    plan, model, device = of.plan, of.model, of.device
    groups, ledger, run, conf = _replay(of)
    own = Stage.of(plan, ledger, run)
    stages, verdicts = _judged(of, (own,) if groups else stages_of(plan, own, conf), conf)
    peaks, most, trained = peaks_over(stages), fullest(stages), of.trained
    outside = Outside.of(of.architecture, plan, most.ledger)
    verdict = worst((*verdicts, *_apart(plan, groups[1:])))
    return Estimate(
        plan=of.given,
        model=model,
        parameters=Parameters(total(model), trained, active(model)),
        ledger=run.ledger if run else ledger,
        peak=peaks[0],
        steps=peaks[1],
        device=outside.above(peaks[0].reserved),
        verdict=_everywhere(plan, verdict, ledger, (model, trained)),
        ranks=degrees(plan).world,
        global_batch=global_batch(plan),
        notes=_notes(plan, model, device, (*stage_note(plan, ledger), *_states_note(plan, ledger, peaks[0]))),
        groups=groups,
    )


def peak_of(plan: Plan, rank: int) -> Peak:
    """The peak of one rank over the whole run, as `estimate` has it. Raises InputError as it does."""
    of = drawn(plan, rank)
    _, ledger, run, conf = _replay(of)
    stages, _ = _judged(of, (Stage.of(of.plan, ledger, run),), conf)
    return stages[0].peaks[0]


def _replay(of: Drawn) -> tuple[tuple[Group, ...], Ledger, Replayed | None, Conf]:
    """Of a plan with roles, the devices that they lie on; the policy's ledger, replayed with the plan's settings."""
    plan = of.plan
    environment = {name: str(value) for name, value in plan.stack.env.items()}
    conf = conf_of(plan.stack.allocator, environment, of.architecture)
    groups = groups_of(plan, of.ledger, of.architecture, of.device, of.rank) if acts(plan) else ()
    ledger = groups[0].ledger if groups else of.ledger
    return groups, ledger, replayed(ledger, conf), conf


def _states_note(plan: Plan, ledger: Ledger, peak: Peak) -> Iterable[str]:
    return states_note(plan, states_of(ledger)[Account.OPTIMIZER] + ledger.paged, peak)


def _everywhere(plan: Plan, verdict: Verdict, ledger: Ledger, of: tuple[Model, int]) -> Verdict:
    """The device's verdict, with those of the other places where the plan says something of one."""
    if not asked(plan):
        return verdict
    model, trained = of
    beside = budgets_of(plan, model, ledger, (device_of(plan), trained))
    return folded(verdict, beside.budgets, beside.traffic)


def _notes(plan: Plan, model: Model, device: Device | None, more: Iterable[str]) -> Notes:
    found = notes_of(plan, model, device)
    return replace(found, warnings=(*found.warnings, *more))


def device_of(plan: Plan) -> Device | None:
    """The plan's device, with its own memory where the plan gives it; None when the plan has none."""
    given = plan.device
    if given is None:
        return None
    tiers = [tier.model_dump() for tier in given.tiers]
    own = {"bandwidth": given.bandwidth, "link": given.link, "architecture": given.architecture}
    return device_from({"name": given.name or "device", "memory": given.memory, "tiers": tiers, **own})


def architecture_of(device: Device | None) -> str:
    """The architecture whose kernels are counted for a device."""
    return device.architecture if device and device.architecture not in UNKNOWN else REFERENCE


def _judged(of: Drawn, stages: Iterable[Stage], conf: Conf) -> tuple[list[Stage], list[Verdict]]:
    """Stages as the device bounds what they reserve, and the verdict of each; the fullest is the first."""
    bounded: list[Stage] = []
    verdicts: list[Verdict] = []
    for one in stages:
        outside, usable, peaks = Outside.of(of.architecture, of.plan, one.ledger), of.usable, one.peaks
        found = smallest_of(peaks[0], outside, usable, (one.run, conf))
        verdict = _verdict(of, one, outside, found)
        if bounded:
            verdict = replace(verdict, reasons=tuple(f"rank {one.ledger.rank}: {why}" for why in verdict.reasons))
        if found and one.run and usable is not None:
            peaks = within(peaks, outside.beside(usable), found, (one.run, conf))
        bounded.append(one._replace(peaks=peaks))
        verdicts.append(verdict)
    return bounded, verdicts


def _verdict(of: Drawn, stage: Stage, outside: Outside, found: Smallest | None) -> Verdict:
    """Against what the run needs: where that is between its live tensors and what it would reserve without a bound, the
    smallest capacity on which the replay succeeds, since the allocator gives back what it caches before it fails."""
    peak, usable = stage.peaks[0], of.usable
    shown = outside.above(peak.reserved)
    if found is None or stage.run is None:
        return judge(usable, least_of(peak, outside), shown.expected, shown.high)
    need = outside.above(without(scaled(found.capacity, replayed_over(of.plan).reserved), peak.spared))
    reason = (
        f"the replay succeeds on {format_size(found.capacity)} and fails on {format_size(found.fails)}; "
        f"without a bound it reserves {format_size(stage.run.most)}"
    )
    answer = judge(usable, min(need.low, need.expected), need.expected, need.high)
    return replace(answer, reasons=(*answer.reasons, reason))


def _apart(plan: Plan, groups: Iterable[Group]) -> Iterator[Verdict]:
    """The verdicts of roles on devices of their own, one on each group."""
    for group in groups:
        own = role_plan(plan, group.roles[0])
        device = device_of(own)
        outside = Outside.of(architecture_of(device), own, group.ledger)
        peak = peaks_of(own, group.ledger, None)[0]
        shown = outside.above(peak.reserved)
        engine = plan.roles.of(group.roles[0]).engine if plan.roles else None
        if engine and engine.memory_share:
            held = peak.allocated  # a share of the device has the engine's context and caches in it
            shown = Band(held.low, held.expected, outside.above(held).high)
        found = judge(device.usable_bytes if device else None, shown.low, shown.expected, shown.high)
        yield replace(found, reasons=tuple(f"{group.name}: {reason}" for reason in found.reasons))


def states_of(ledger: Ledger) -> dict[str, int]:
    """Resident bytes of weights, gradients, master weights and optimizer states: each at its fullest moment of the
    steps. While a model is built, weights may lie there twice."""
    kinds = (Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER)
    found = dict.fromkeys((kind.value for kind in kinds), 0)
    for moment in [one for one in ledger.moments if in_steps(one.name)] or ledger.moments:
        here = dict.fromkeys(found, 0)
        for number, copies in moment.live:
            line = ledger.lines[number]
            if line.account in kinds:
                here[line.account.value] += line.unit * copies
        found = {name: max(size, here[name]) for name, size in found.items()}
    return found
