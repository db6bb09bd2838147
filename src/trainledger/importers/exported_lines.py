"""What a change of a plan comes to in its files' own words: what their exporter says of the changed plan, and did not
say of the plan as it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from trainledger.answer.changed import Change, LeftOut, planned, value_of
from trainledger.base.problems import InputError
from trainledger.facts.import_deepspeed import DEEPSPEED_KEYS
from trainledger.importers.deepspeed_json import ZERO as SECTION
from trainledger.importers.draft import Draft
from trainledger.importers.emit import ARGS, OWN, Line, Said, Sheet, leaves
from trainledger.importers.emit_accelerate import SETTINGS
from trainledger.importers.emit_sharding import PARTS
from trainledger.importers.export import Trial, names_of, read_back, texts
from trainledger.importers.formats import EMITTERS
from trainledger.plan.schema import Plan, as_mapping

ZERO, ACCELERATE = "DeepSpeed configuration", "accelerate configuration"
TRAINER = ("TrainingArguments", "python command", "torchrun command", "deepspeed command", "accelerate command", "trl")
FOLLOWS = ("stack.framework",)  # what runs a plan follows from its files
INNER = {"deepspeed": (ZERO, ""), "fsdp_config": (ACCELERATE, "fsdp_config.fsdp_")}  # files of their own, where given


PATHS = {  # keys of the plan that DeepSpeed's keys say
    **{row.name: row.path for row in DEEPSPEED_KEYS if row.path},
    f"{SECTION}.stage": "parallel.strategy",
    **{f"{SECTION}.{section}.device": path for path, section in PARTS},
}


@dataclass(frozen=True, slots=True)
class Way:
    """An exporter, the formats that it stands for (how their names begin), and in which format's file each part of
    its lines stands."""

    to: str
    formats: tuple[str, ...]
    parts: Mapping[str, tuple[str, ...]]


# The first whose format is among a run's files: front ends before what they are made of.
WAYS = (
    Way("axolotl", ("Axolotl",), {OWN: ("Axolotl",)}),
    Way("llama-factory", ("LLaMA-Factory",), {OWN: ("LLaMA-Factory",)}),
    Way("torchtune", ("torchtune",), {OWN: ("torchtune",)}),
    Way("torchtitan", ("torchtitan",), {OWN: ("torchtitan",)}),
    Way("megatron", ("Megatron-LM",), {ARGS: ("Megatron-LM",)}),
    Way("accelerate", (ACCELERATE,), {OWN: (ACCELERATE,), SETTINGS: (ZERO,), ARGS: TRAINER}),
    Way("deepspeed", (ZERO,), {OWN: (ZERO,), ARGS: TRAINER}),
    Way("trl", TRAINER, {ARGS: TRAINER}),
)


@dataclass(frozen=True, slots=True)
class Key:
    """A key to write: the file it goes into, its name (dotted where nested), its value and the one before (None: it is
    not there), and the plan's key that it says."""

    file: str
    name: str
    value: Any
    was: Any
    path: str

    @property
    def gone(self) -> bool:
        """Whether the key is taken out."""
        return self.value is None


def way_of(draft: Draft) -> Way | None:
    """The exporter that stands for a draft's files; None where they are of formats without one."""
    return next((way for way in WAYS if any(name.startswith(way.formats) for _, name in draft.formats)), None)


class Exporter:
    """An exporter over a run's own files."""

    def __init__(self, draft: Draft, way: Way) -> None:
        self.draft, self.way = draft, way
        self.emitter = import_module(f"trainledger.importers.{EMITTERS[way.to]}")
        self.names = names_of(f"run{self.emitter.SUFFIX}")
        self.before = self._sheet(draft.plan)

    def keys(self, changes: Sequence[Change]) -> tuple[tuple[Key, ...], tuple[Change, ...]] | None:
        """The keys that these changes come to, in their order, and the changes that no key says; None where the
        exporter cannot say the plan, before or after."""
        try:
            plan = planned(self.draft.data, changes)
            after = self._sheet(plan)
        except InputError:
            return None
        if self.before is None or after is None:
            return None
        found = list(self._differing(self.before, after, None))
        left = _left(changes, found)
        if self.before.levers != after.levers or _turned(after, left):  # what no plain line says, a lever may
            found = list(self._differing(self.before, after, plan))
            left = _left(changes, found)
        order = [change.path for change in changes]
        found.sort(key=lambda key: next((at for at, path in enumerate(order) if same_key(key.path, path)), len(order)))
        return tuple(found), tuple(self._unsaid(plan, after, left))

    def each(self, changes: Sequence[Change]) -> tuple[tuple[Key, ...], tuple[Change, ...]] | None:
        """The same of each change by itself, where the exporter cannot say them together: what it does not say even so
        is a change that no key says. None where it cannot say the plan as it stands."""
        if self.before is None:
            return None
        found, left = list[Key](), list[Change]()
        for one in changes:
            if isinstance(one.value, LeftOut):  # it makes room for a default of what it stands beside
                continue
            keys, unsaid = self.keys([one]) or ((), (one,))
            found += [key for key in keys if key not in found]
            left += unsaid
        return tuple(found), tuple(left)

    def _sheet(self, plan: Plan) -> Sheet | None:
        try:
            found: Sheet = self.emitter.sheet(Said(plan, partial=True), self.names)
        except InputError:
            return None
        return found

    def _differing(self, before: Sheet, after: Sheet, plan: Plan | None) -> Iterator[Key]:
        """Keys that one of two sheets lacks or says otherwise; of levers too, where the changed plan is given."""
        first, last = before.lines, after.lines
        if plan is not None:
            first = (*first, *self._chosen(self.draft.plan, before))
            last = (*last, *self._chosen(plan, after))
        was, now = self._named(first), self._named(last)
        for name, line in now.items():
            old = was.get(name)
            if old is None or old.value != line.value:
                yield from self._keys(old, line)
        for name, line in was.items():
            if name not in now:
                yield from self._keys(line, replace(line, value=None))

    def _named(self, lines: Sequence[Line]) -> dict[tuple[str, str], Line]:
        """Lines by part and key, of the parts that stand in a file; what a flag that is off says is no line."""
        flags = self.way.to == "megatron"
        return {
            (one.part, one.key): replace(one, value="") if flags and one.value is True else one
            for one in lines
            if self._file(one) and not (flags and one.value is False)
        }

    def _file(self, line: Line) -> str:
        wanted = self.way.parts.get(line.part, ())
        return next((file for file, name in self.draft.formats if wanted and name.startswith(wanted)), "")

    def _keys(self, old: Line | None, new: Line) -> Iterator[Key]:
        """The keys of a line that differs: of a mapping those inside it that do, where it was there before, or where it
        has a file of its own."""
        file, inner = self._file(new), INNER.get(new.key)
        own = next((name for name, kind in self.draft.formats if inner and kind == inner[0]), "")
        nests = isinstance(new.value, dict) and (own or (old is not None and isinstance(old.value, dict)))
        if not nests:
            yield Key(file, new.key, new.value, old.value if old else None, new.path)
            return
        start = inner[1] if own and inner else f"{new.key}."
        was = dict(leaves(old.value)) if old is not None and isinstance(old.value, dict) else {}
        now = dict(leaves(new.value))
        for name in dict.fromkeys((*now, *was)):
            if was.get(name) != now.get(name):
                full = f"{start}{name}"
                yield Key(own or file, full, now.get(name), was.get(name), PATHS.get(full, new.path))

    def _chosen(self, plan: Plan, sheet: Sheet) -> tuple[Line, ...]:
        """Of every lever the way that reads back nearest; the plainest where none does, or where there is one."""
        if all(len(lever) == 1 for lever in sheet.levers):
            return tuple(line for lever in sheet.levers for line in lever[0])
        try:
            return Trial(plan, self.emitter, sheet, self.names).best()[0]
        except InputError:
            return tuple(line for lever in sheet.levers for line in lever[0])

    def _unsaid(self, plan: Plan, sheet: Sheet, left: Sequence[Change]) -> Iterator[Change]:
        """Of changes without a key of their own those that the exporter's files do not come to."""
        if not left:
            return
        try:
            files = texts(self.emitter, sheet, self._chosen(plan, sheet), (self.names, ()))
            back = as_mapping(read_back(files, self.names.script, plan.stack.versions))
        except InputError:
            yield from left
            return
        meant = as_mapping(plan)
        yield from (one for one in left if value_of(back, one.path) != value_of(meant, one.path))


def _turned(sheet: Sheet, left: Sequence[Change]) -> bool:
    """Whether one of these changes is of a key that a lever says."""
    lines = [line for lever in sheet.levers for way in lever for line in way]
    return any(same_key(line.path, one.path) for line in lines for one in left)


def _left(changes: Sequence[Change], found: Sequence[Key]) -> tuple[Change, ...]:
    """Changes without a key of their own; those that make room for a default need none."""
    asked = (one for one in changes if not isinstance(one.value, LeftOut) and one.path not in FOLLOWS)
    return tuple(one for one in asked if not any(same_key(key.path, one.path) for key in found))


def same_key(key: str, path: str) -> bool:
    """Whether a key of the plan is a change's, lies inside it or holds it."""
    return bool(key) and (key == path or key.startswith(f"{path}.") or path.startswith(f"{key}."))
