"""An estimate as plain data, for `--json` and for the Python library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from trainledger.answer.acting import rows_of
from trainledger.answer.bands import Peak
from trainledger.answer.disk import beside, elsewhere
from trainledger.answer.estimate import Estimate, device_of, states_of
from trainledger.answer.tables import Entry, Role, entries, moment_of, rank_of, roles_of
from trainledger.base.sources import Source
from trainledger.facts.device_rows import Device
from trainledger.show.beyond import lengths_data, over_run_data, parts_data
from trainledger.show.budgets import band, host_data, places_data, update_data


class UsedKey(Protocol):
    """A key that was given: its path, its value, where it stands."""

    @property
    def path(self) -> str:
        """The key's dotted path."""

    @property
    def value(self) -> object:
        """The value given."""

    @property
    def where(self) -> str:
        """`file:line` or `--set ...`."""


class FilledKey(Protocol):
    """A key that was left out, with the value it got."""

    @property
    def path(self) -> str:
        """The key's dotted path."""

    @property
    def value(self) -> object:
        """The default."""

    @property
    def why(self) -> str:
        """The reason, with the framework's version."""

    @property
    def source(self) -> Source:
        """What says so."""


class UnusedKey(Protocol):
    """A key of an outside file that has no use here."""

    @property
    def path(self) -> str:
        """The key's dotted path."""

    @property
    def why(self) -> str:
        """The reason."""


class UnknownKey(Protocol):
    """A key that its format is not known to have."""

    @property
    def path(self) -> str:
        """The key."""

    @property
    def where(self) -> str:
        """Its place."""

    @property
    def near(self) -> str:
        """The nearest known key; empty without one."""


class UncountedKey(Protocol):
    """A key that moves memory and is not counted."""

    @property
    def path(self) -> str:
        """The key."""

    @property
    def where(self) -> str:
        """Its place."""

    @property
    def direction(self) -> str:
        """Which way the ledger errs."""


class Origin(Protocol):
    """How the plan's keys came about: what any importer's draft can say."""

    @property
    def used(self) -> Sequence[UsedKey]:
        """Keys that were given."""

    @property
    def defaulted(self) -> Sequence[FilledKey]:
        """Keys that were filled in."""

    @property
    def ignored(self) -> Sequence[UnusedKey]:
        """Keys without a use."""

    @property
    def unknown(self) -> Sequence[UnknownKey]:
        """Keys of outside files that their format is not known to have."""

    @property
    def uncounted(self) -> Sequence[UncountedKey]:
        """Keys of outside files that move memory and are not counted."""

    @property
    def formats(self) -> Sequence[tuple[str, str]]:
        """Outside files, and what each was taken for."""


EVERY = "all"
UNWRITTEN = ("inf", "-inf", "nan")  # numbers that JSON has no way to write


def document(answer: Estimate, origin: Origin, moment: str = "", rank: str = "") -> dict[str, Any]:
    """The estimate as JSON values; sizes in bytes.

    `entries` are the lines live at `moment` (the peak where it is empty), so that their bytes add up to that moment's;
    `all` lists every line, with the copies and bytes that it has at the peak. Raises InputError for an unknown moment
    or rank.
    """
    every = moment.strip().lower() == EVERY
    shown = moment_of(answer, "" if every else moment)
    found = roles_of(answer, rank)
    kept = elsewhere(answer, (budgets := beside(answer)).checkpoint)
    return {
        "model": _model(answer),
        "parameters": {
            "total": answer.parameters.total,
            "trainable": answer.parameters.trainable,
            "active": answer.parameters.active,
        },
        "device": _device(device_of(answer.plan)),
        "peak": _peak(answer, rank),
        "states": states_of(answer.ledger),
        "moments": [{"name": one.name, "allocated": one.allocated} for one in answer.ledger.moments],
        "parts": parts_data(answer),
        "lengths": lengths_data(answer),
        "over_run": over_run_data(answer),
        "moment": shown.name,
        "entries": [entry_data(entry) for entry in entries(answer.ledger, shown, every)],
        "ranks": [_role(role) for role in found],
        **(_phases(answer) if answer.groups else {}),
        "host": {"bytes": kept.host, "paged_bytes": kept.paged, **host_data(budgets)},
        "places": places_data(budgets),
        "update": update_data(budgets),
        "checkpoint": budgets.checkpoint.to_dict(),
        "global_batch": answer.global_batch,
        "verdict": answer.verdict.to_dict(),
        "draft": draft_data(origin),
        "notes": list(answer.notes.warnings),
        "not_counted": list(answer.notes.uncounted),
    }


def _peak(answer: Estimate, rank: str) -> dict[str, Any]:
    return {
        **_amounts(answer.peak),
        "device": band(answer.device),
        "rank": rank_of(answer, rank),
        "steps": _amounts(answer.steps),
    }


def entry_data(entry: Entry) -> dict[str, Any]:
    """An entry under the contract's names."""
    line = entry.line
    return {
        "account": line.account.value,
        "name": line.name,
        "role": line.role,
        "dims": [{"name": axis.dim.value, "size": axis.size} for axis in line.dims],
        "dtype": line.dtype.name,
        "shards": line.shards,
        "copies": entry.copies,
        "bytes": entry.bytes,
        "place": line.place.value,
        "live": list(entry.live),
        "basis": line.basis.value,
        "source": str(line.source),
        "why": line.why,
    }


def draft_data(origin: Origin) -> dict[str, Any]:
    """How the plan's keys came about."""
    return {
        "used": [{"path": one.path, "value": plain_value(one.value), "where": one.where} for one in origin.used],
        "defaulted": [
            {"path": one.path, "value": plain_value(one.value), "why": one.why, "source": str(one.source)}
            for one in origin.defaulted
        ],
        "ignored": [
            *({"path": one.path, "why": one.why} for one in origin.ignored),
            *({"path": one.path, "why": _not_known(one), "where": one.where} for one in origin.unknown),
        ],
        "unknown": [{"path": one.path, "where": one.where, "near": one.near} for one in origin.unknown],
        "not_counted": [{"path": one.path, "where": one.where, "direction": one.direction} for one in origin.uncounted],
        "formats": [{"file": name, "format": found} for name, found in origin.formats],
    }


def _not_known(one: UnknownKey) -> str:
    return f"not known; did you mean {one.near}?" if one.near else "not known"


def plain_value(value: object) -> object:
    """A plan's value as JSON has it: what it has no number for (infinity, not a number) is written as text."""
    if isinstance(value, dict):
        return {str(name): plain_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(part) for part in value]
    if isinstance(value, float) and str(value) in UNWRITTEN:
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def name_of(answer: Estimate) -> str:
    """The model's name as the plan has it, or its family."""
    return str(answer.plan.keys().get("name") or answer.model.family)


def _model(answer: Estimate) -> dict[str, str]:
    return {"name": name_of(answer), "model_type": str(answer.plan.keys().get("model_type", answer.model.family))}


def _device(device: Device | None) -> dict[str, Any] | None:
    if device is None:
        return None
    return {
        "name": device.name, "usable_bytes": device.usable_bytes, "basis": device.basis.value,
        "source": str(device.source),
        "tiers": [
            {"name": tier.name, "bytes": tier.bytes, "bandwidth": tier.bandwidth, "shared_by": tier.shared_by}
            for tier in device.tiers
        ],
    }  # fmt: skip


def _phases(answer: Estimate) -> dict[str, Any]:
    """Of a plan with roles: phases of an iteration by group of devices, and the groups with their verdicts."""
    return {
        "phases": [
            {
                "group": row.group, "phase": row.phase, "moment": row.moment, "allocated": row.allocated,
                "worst": row.worst, "roles": [{"role": one.role, "bytes": one.bytes} for one in row.shares],
            }
            for row in rows_of(answer.plan, answer.groups)
        ],
        "groups": [
            {
                "name": one.name, "devices": one.devices, "roles": list(one.roles),
                "moments": [{"name": moment.name, "allocated": moment.allocated} for moment in one.ledger.moments],
            }
            for one in answer.groups
        ],
    }  # fmt: skip


def _amounts(peak: Peak) -> dict[str, Any]:
    return {
        "moment": peak.moment,
        "allocated": band(peak.allocated),
        "active": band(peak.active),
        "reserved": band(peak.reserved),
    }


def _role(role: Role) -> dict[str, Any]:
    return {"ranks": [rank for run in role.ranks for rank in run], "allocated": role.allocated, "moment": role.moment}
