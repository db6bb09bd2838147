"""Megatron-Core's pipeline layout: a text such as `Et*3|(tt|)*6mL`, read into the letters of every stage."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainledger.base.problems import InputError, Problem
from trainledger.facts.limits import LAYOUT
from trainledger.facts.pipelines import LAYOUT_LETTERS as LETTERS
from trainledger.plan.text import shown

PATH = "parallel.options.pipeline_model_parallel_layout"
_KNOWN = (LETTERS.embedding, LETTERS.layer, LETTERS.mtp, LETTERS.loss)
_GROUP = re.compile(r"\((?P<what>[^)]+)\)\*(?P<times>\d+)")
_LETTER = re.compile(r"(?P<what>.)\*(?P<times>\d+)")

Placed = tuple[str, int]  # a letter and its position in the text, from 1


def read_layout(text: str) -> tuple[tuple[Placed, ...], ...]:
    """The letters of every stage in order, each with its position in the text (from 1).

    Megatron-Core's grammar: `|` ends a stage, `(tt|)*6` repeats a group and `t*3` one letter, groups first and not
    nested; commas do not count. Raises InputError with every character that has no meaning.
    """
    placed = [(letter, at) for at, letter in enumerate(text, 1) if letter != ","]
    for pattern in (_GROUP, _LETTER):
        placed = _repeated(placed, pattern)
    wrong = dict.fromkeys((letter, at) for letter, at in placed if letter not in (*_KNOWN, LETTERS.stage))
    if wrong:
        raise InputError(_misread(letter, at) for letter, at in wrong)
    stages: list[list[Placed]] = [[]]
    for letter, at in placed:
        if letter == LETTERS.stage:
            stages.append([])
        else:
            stages[-1].append((letter, at))
    return tuple(map(tuple, stages))


def _repeated(placed: list[Placed], pattern: re.Pattern[str]) -> list[Placed]:
    """The letters with every match of the pattern written out."""
    text, out, done = "".join(letter for letter, _ in placed), list[Placed](), 0
    for match in pattern.finditer(text):
        what = placed[match.start("what") : match.end("what")]
        times = int(match["times"])
        if len(what) * times > LAYOUT.value:
            found = f"position {placed[match.start()][1]}: {shown(match[0])}"
            raise InputError([Problem(PATH, found, f"at most {LAYOUT.value:,} {LAYOUT.unit} can be read")])
        out += placed[done : match.start()] + what * times
        done = match.end()
    return out + placed[done:]


def _misread(letter: str, at: int) -> Problem:
    known = f"{', '.join(_KNOWN)} and {LETTERS.stage} are known"
    fix = ""
    if letter in "()*" or letter.isdigit():
        fix = "A factor follows one letter or one group that holds no other: t*3, (tt|)*6."
    elif letter.swapcase() in _KNOWN:
        fix = f"Did you mean {letter.swapcase()}?"
    return Problem(PATH, f"position {at}: {shown(letter)}", known, fix)


def layout_problems(stages: tuple[tuple[Placed, ...], ...], ranks: int, layers: int, mtp: int) -> Iterator[Problem]:
    """Every rule of Megatron-Core that stages break on so many pipeline ranks with so many layers and MTP layers."""
    flat = [one for stage in stages for one in stage]
    if len(stages) % ranks:
        yield Problem(PATH, f"{len(stages)} stages", f"a multiple of parallel.pp ({ranks}) is needed")
    for letter, name, at in ((LETTERS.embedding, "embedding", 0), (LETTERS.loss, "loss", -1)):
        places = [position for one, position in flat if one == letter]
        if len(places) != 1:
            where = f" at positions {', '.join(map(str, places))}" if places else ""
            yield Problem(PATH, f"{len(places)} x {letter}{where}", f"the {name} ({letter}) stands there once")
        elif flat[at][0] != letter:
            place = "first" if at == 0 else "last"
            yield Problem(PATH, f"position {flat[at][1]}: {flat[at][0]!r}", f"the {name} ({letter}) comes {place}")
    for letter, name, count in ((LETTERS.layer, "layers", layers), (LETTERS.mtp, "MTP layers", mtp)):
        found = sum(one == letter for one, _ in flat)
        if found != count:
            yield Problem(PATH, f"{found} x {letter}", f"the model has {count} {name}")
    yield from _mtp_problems(stages, ranks)


def _mtp_problems(stages: tuple[tuple[Placed, ...], ...], ranks: int) -> Iterator[Problem]:
    """MTP layers come after all others, in one stage, which is the last chunk of its rank."""
    holders = [at for at, stage in enumerate(stages) if any(letter == LETTERS.mtp for letter, _ in stage)]
    if not holders:
        return
    flat = [one for stage in stages for one in stage]
    first = next(at for at, (letter, _) in enumerate(flat) if letter == LETTERS.mtp)
    late = next((position for letter, position in flat[first:] if letter == LETTERS.layer), None)
    if late is not None:
        yield Problem(PATH, f"position {late}: a layer after MTP", "MTP layers (m) come after every layer (t)")
    if len(holders) > 1:
        yield Problem(PATH, f"MTP layers in {len(holders)} stages", "all of them lie in one stage")
    if holders[0] < len(stages) - ranks:
        place = next(position for letter, position in stages[holders[0]] if letter == LETTERS.mtp)
        allowed = f"MTP layers (m) lie in one of the last {ranks} stages, the last chunk of each rank"
        yield Problem(PATH, f"position {place}: MTP in stage {holders[0] + 1} of {len(stages)}", allowed)
