"""A plan as the files of a framework: what its emitter says, read back by its importer, and what did not come back.

The files are read back before they are handed out. So what a format cannot say is found by the importer itself, and
both directions cannot drift apart.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from shlex import split
from tempfile import TemporaryDirectory
from typing import Any

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.names import PACKAGES
from trainledger.importers.alike import NEEDED, Difference, differences, needed
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.emit import Line, Names, Said, Sheet, nested
from trainledger.importers.emit_text import json_file
from trainledger.importers.formats import EMITTERS
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of
from trainledger.plan.schema import Plan

SCRIPT = ".sh"


@dataclass(frozen=True, slots=True)
class Exported:
    """Files that were made of a plan, by name, the format's own first; keys of the plan that they do not say, or say
    otherwise; `reads`: the file that names all others, which a reader is given."""

    to: str
    files: tuple[tuple[str, str], ...]
    unsaid: tuple[Difference, ...]
    reads: str

    def to_dict(self) -> dict[str, Any]:
        """What `trainledger export --json` prints."""
        return {
            "to": self.to,
            "reads": self.reads,
            "files": [{"name": name, "text": text} for name, text in self.files],
            "unsaid": [
                {"path": one.path, "value": one.value, "back": one.back, "why": one.why, "change": one.change}
                for one in self.unsaid
            ],
        }


def export(draft: Draft, to: str, main: str = "") -> Exported:
    """The plan of a draft as `to`'s files. `main`: the name of the format's own file, its kind's where it is empty.

    Raises InputError for a format that there is not, and with every key of the plan without which the files would be
    another run: its model, its batch, what shards it.
    """
    emitter = _emitter(to)
    draft = _framed(draft, emitter.FRAMEWORK, to)
    names = names_of(main or f"{to}{emitter.SUFFIX}")
    said = Said(draft.plan)
    sheet: Sheet = emitter.sheet(said, names)
    tried = Trial(draft.plan, emitter, sheet, names)
    chosen, found = tried.best()
    lost = [one for one in found if needed(one.path)]
    if lost:
        raise InputError([_refused(one, draft, to) for one in lost])
    plain = texts(emitter, sheet, chosen, (names, ()))
    found = _settled(draft.plan, plain, names.script, found)
    head = _head(to, names, draft.plan, found)
    files = texts(emitter, sheet, chosen, (names, head))
    return Exported(to, files, tuple(found), names.script)


def _emitter(to: str) -> Any:
    if to not in EMITTERS:
        near = nearest(to, EMITTERS)
        fix = f"Did you mean {near}?" if near else ""
        raise InputError([Problem("--to", f"found {to!r}", f"one of {', '.join(EMITTERS)} is needed", fix)])
    return import_module(f"trainledger.importers.{EMITTERS[to]}")


def names_of(main: str) -> Names:
    """The names of files that are written together, from that of the format's own."""
    stem = os.path.splitext(main)[0]
    script = main if main.endswith(SCRIPT) else f"{stem}{SCRIPT}"
    return Names(main, script, f"{stem}.deepspeed.json", f"{stem}-model")


def _framed(draft: Draft, framework: str, to: str) -> Draft:
    """The draft under the framework that reads the files: where the plan names none, resolved anew with it.

    Raises InputError where the plan names another.
    """
    if draft.plan.stack.framework == framework:
        return draft
    given = next((one for one in draft.used if one.path == "stack.framework"), None)
    if given is not None or draft.formats:
        found = f"found {draft.plan.stack.framework}"
        fix = f"--set stack.framework={framework} asks for the same plan under it."
        where = given.where if given else ""
        raise InputError([Problem("stack.framework", found, f"--to {to} writes a run by {framework}", fix, where)])
    kept = [(one.path, one.value) for one in draft.used if one.path.partition(".")[0] != "model"]
    data = nested([*kept, ("stack.framework", framework)])
    return draft_of(Document({**data, "model": draft.plan.keys()}, {}))


def _settled(plan: Plan, files: Sequence[tuple[str, str]], reads: str, found: Sequence[Difference]) -> list[Difference]:
    """The differences, and those that come up once the first are said beside the files: a key that is said changes
    what others come to that follow it."""
    known = {one.path: one for one in found}
    more = list(known)
    while more:  # each turn names a key more
        sets = [split(one.change)[1] for one in known.values()]
        back = read_back(files, reads, plan.stack.versions, sets)
        more = [one.path for one in differences(plan, back) if one.path not in known]
        known |= {one.path: one for one in differences(plan, back) if one.path in more}
    return list(known.values())


def _refused(one: Difference, draft: Draft, to: str) -> Problem:
    where = next((used.where for used in draft.used if used.path == one.path), "")
    back = "" if one.back is None else f": what it runs is {one.shown_back}"
    return Problem(one.path, f"found {one.shown}", f"{to}'s files cannot say it{back}", where=where)


def _head(to: str, names: Names, plan: Plan, found: Sequence[Difference]) -> tuple[str, ...]:
    """Comments at the top: what the file was made of, and how it is read back."""
    known = [(name, text) for name, text in plan.stack.versions.items() if name in PACKAGES.names]
    releases = " ".join(f"--framework-version {name}=={text}" for name, text in known)
    sets = " ".join(one.change for one in found)
    return (
        f"Written from a plan for {to}. Data, learning rate and schedule are not in a plan: add them.",
        f"The same estimate: trainledger estimate {' '.join(filter(None, (names.script, releases, sets)))}",
    )


def texts(
    emitter: Any, sheet: Sheet, chosen: Sequence[Line], how: tuple[Names, tuple[str, ...]]
) -> tuple[tuple[str, str], ...]:
    """Files, by name, of a sheet with these of its levers' lines; `how`: their names, and comments at their top."""
    names, head = how
    files = list(emitter.files((*sheet.lines, *chosen), names, head))
    if sheet.model is not None:
        files.append((f"{names.model}/config.json", json_file(sheet.model)))
    return tuple(files)


@dataclass(slots=True)
class Trial:
    """Ways to say a plan, each read back and held against it."""

    plan: Plan
    emitter: Any
    sheet: Sheet
    names: Names

    def best(self) -> tuple[tuple[Line, ...], list[Difference]]:
        """Of every lever the way that reads back nearest, one lever after the other, and what then still differs.

        Raises InputError where no way can be read back.
        """
        taken = [0 for _ in self.sheet.levers]
        least, found = self._tried(taken)
        for number, lever in enumerate(self.sheet.levers):
            for way in range(1, len(lever)):
                if not least[1]:
                    break
                other = [*taken[:number], way, *taken[number + 1 :]]
                score, differing = self._tried(other)
                if score < least:
                    least, taken, found = score, other, differing
        if isinstance(found, InputError):
            raise found
        return self._lines(taken), found

    def _lines(self, taken: Sequence[int]) -> tuple[Line, ...]:
        return tuple(line for lever, way in zip(self.sheet.levers, taken, strict=True) for line in lever[way])

    def _tried(self, taken: Sequence[int]) -> tuple[tuple[int, int], list[Difference] | InputError]:
        """How many keys that are needed, and how many at all, do not come back, and which."""
        files = texts(self.emitter, self.sheet, self._lines(taken), (self.names, ()))
        try:
            found = list(differences(self.plan, read_back(files, self.names.script, self.plan.stack.versions)))
        except InputError as error:
            return (len(NEEDED) + 1, 1), error
        return (sum(needed(one.path) for one in found), len(found)), found


def read_back(
    files: Sequence[tuple[str, str]], reads: str, versions: Mapping[str, str], sets: Sequence[str] = ()
) -> Plan:
    """The plan that files, by name, are read as, with these changes. Raises InputError as reading them does."""
    with TemporaryDirectory() as folder:
        write(files, folder)
        try:
            return read_any([os.path.join(folder, reads)], sets, versions=versions).plan
        except InputError as error:
            gone = f"{folder}{os.sep}"
            raise InputError(
                [
                    replace(one, where=one.where.replace(gone, ""), found=one.found.replace(gone, ""))
                    for one in error.problems
                ]
            ) from None


def write(files: Sequence[tuple[str, str]], folder: str) -> None:
    """Write files, by name, into a folder."""
    for name, text in files:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
