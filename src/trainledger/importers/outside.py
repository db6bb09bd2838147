"""Outside files, alone or together, to one draft: each read by its format, then merged, then read as a plan is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

from trainledger.base.problems import InputError, Problem
from trainledger.importers.document import Document, Path
from trainledger.importers.draft import Draft, Ignored
from trainledger.importers.formats import MODEL, Context, extract, format_of, recognised
from trainledger.importers.hf_roles import DEFAULT
from trainledger.importers.hf_settle import settle
from trainledger.importers.inputs import Input, read_input
from trainledger.importers.model_source import catalogued, resolve_model
from trainledger.importers.piece import AUTO, Given, Piece, Rank
from trainledger.importers.plan_file import draft_of
from trainledger.importers.sets import apply_sets
from trainledger.importers.shapes import Shape, shape_of

PLAN_KEYS = ("model", "batch")  # what every plan has
WORLD = "parallel.world"
PARTS = ("model", "batch", "precision", "optimizer", "parallel", "stack", "adapter", "quantization", "task", "device")


def read_any(
    sources: Sequence[str],
    sets: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
    stdin: IO[Any] | None = None,
) -> Draft:
    """The draft of one plan, or of outside files together.

    `-` is standard input; `env`: variables that scripts may take from outside; `versions`: releases of packages, above
    what a file says and below `sets`. Raises InputError with every problem.
    """
    if not sources:
        raise InputError([Problem("", "no file", "a plan, or the files of a run, are needed")])
    inputs = [read_input(source, dict(env or {}), stdin) for source in sources]
    if len(inputs) == 1 and is_plan(inputs[0]):
        if env:
            allowed = "a script reads variables, a plan has stack.env"
            raise InputError(
                [Problem("--env", "given with a plan", allowed, "Leave it out, or --set stack.env.NAME=VALUE.")]
            )
        document = inputs[0].document or Document(None, {})
        if document.data is None and not sets:
            allowed = "a plan is a mapping of keys to values"
            raise InputError([Problem("", "an empty file", allowed, where=inputs[0].name)])
        return draft_of(apply_sets(_released(document, versions or {}), sets), inputs[0].folder)
    pieces = read_pieces(inputs, dict(versions or {}), [one.partition("=")[0].strip() for one in sets])
    try:
        draft = draft_of(apply_sets(merged(pieces), sets), inputs[0].folder)
    except InputError as error:
        raise InputError([*error.problems, *misspelt(pieces)]) from None
    return _with(draft, pieces)


def model_keys_of(source: str) -> dict[str, Any]:
    """The keys of the model that a text means: that of a plan or of a run's own file, else what `model:` in a plan may
    be. Raises InputError with every problem."""
    if os.path.isfile(source) and not _in_catalogue(source):
        given = read_input(source)
        form = recognised(given)
        if form != MODEL and (form or is_plan(given) or not source.endswith(".json")):
            return read_any([source]).plan.keys()
    return resolve_model(source)[0]


def _in_catalogue(name: str) -> bool:
    from trainledger.facts.catalogue import find_model

    try:
        return bool(find_model(name))
    except InputError:
        return False


def _released(document: Document, versions: Mapping[str, str]) -> Document:
    """A plan with the releases that were given beside it."""
    changed = apply_sets(document, [f"stack.versions.{name}={release}" for name, release in versions.items()])
    places: dict[Path, str] = {("stack", "versions", name): "--framework-version" for name in versions}
    return replace(changed, places={**changed.places, **places})


def _named(versions: Mapping[str, str]) -> Iterator[Piece]:
    """The releases that were given beside the files: keys of the plan as they stand, above every file's word."""
    if versions:
        piece = Piece("", "", rank=Rank.FLAG)
        for name, release in versions.items():
            piece.give(f"stack.versions.{name}", release, "--framework-version")
        yield piece


def is_plan(given: Input) -> bool:
    """Whether an input is a plan rather than an outside file: it has what every plan has, or no format knows it and it
    has keys of a plan, or no keys at all."""
    if given.document is None:
        return False
    if not given.data or set(PLAN_KEYS) <= set(given.data):
        return True
    return not recognised(given) and bool(set(given.data) & set(PARTS))


def read_pieces(inputs: Sequence[Input], versions: dict[str, str], sets: Sequence[str] = ()) -> tuple[Piece, ...]:
    """Every input's piece, those of the files that they name, and what follows of all together. `sets`: keys of the
    plan that are set beside the files, whose problems do not count. Raises InputError with every problem."""
    pieces: list[Piece] = []
    waiting, seen = list(inputs), {os.path.abspath(one.name) for one in inputs}
    problems: list[Problem] = []
    while waiting:
        given = waiting.pop(0)
        if given.data and is_plan(given) and not recognised(given):
            problems.append(_beside(given.name))
            continue
        try:
            piece = extract(given, format_of(given), Context(versions, tuple(pieces)))
        except InputError as error:
            problems += error.problems
            continue
        _locate(piece, given.folder)
        _acting(piece, given.folder)
        pieces.append(piece)
        problems += piece.problems
        for path, where in piece.files:
            full = located(path, given.folder)
            if os.path.abspath(full) in seen or _given_elsewhere(full, seen):
                continue
            seen.add(os.path.abspath(full))
            try:
                waiting.append(read_input(full))
            except InputError as error:
                problems += [replace(one, where=where) for one in error.problems]
    last = settle(pieces, versions)
    if last is not None:
        # beside other problems only that of ranks, which does not follow of them
        told = [one for one in last.problems if not problems or one.path == WORLD]
        pieces.append(last)
        problems += [one for one in told if one.path not in sets]
    if problems:
        raise InputError([*dict.fromkeys(problems), *misspelt(pieces)])
    return (*pieces, *_named(versions))


def _beside(name: str) -> Problem:
    """A plan among a run's own files: it says all that they would say."""
    fix = "Estimate or export it alone, with --set for what differs; compare takes several plans."
    return Problem("", f"{name}: a plan of trainledger already", "a plan is read alone", fix)


def misspelt(pieces: Sequence[Piece]) -> Iterator[Problem]:
    """Keys that are no format's and are near one that is: named beside other problems, as they may be their cause."""
    for one in (one for piece in pieces for one in piece.unknown if one.near):
        yield Problem(one.path, "unknown key", "this format has no such key", f"Did you mean {one.near}?", one.where)


def _given_elsewhere(path: str, seen: set[str]) -> bool:
    """Whether a file that is not where it is named was given from another place."""
    return not os.path.exists(path) and any(os.path.basename(path) == os.path.basename(one) for one in seen)


def located(path: str, folder: str) -> str:
    """A path that a file names: beside that file, or as it stands where there is none (a script's paths start where it
    is run)."""
    beside = os.path.join(folder, os.path.expanduser(path))
    return beside if os.path.isabs(path) or os.path.exists(beside) else os.path.expanduser(path)


def _locate(piece: Piece, folder: str) -> None:
    """A model that is a folder or file here is read as an input of its own."""
    for held, key in ((piece.given, "model"), (piece.facts, "model.base")):
        model = held.get(key)
        if model is None or not isinstance(model.value, str) or "\0" in model.value:
            continue
        full = located(model.value, folder)
        if os.path.isfile(os.path.join(full, "config.json")) or (os.path.isfile(full) and full.endswith(".json")):
            held[key] = Given(full, model.where)
            piece.files.append((os.path.abspath(full), model.where))
        elif shape := shape_of(model.value):
            held[key] = Given(_shaped(shape), model.where)
            piece.ignored.append(Ignored(f"{model.where} {model.value}", str(shape)))


def _acting(piece: Piece, folder: str) -> None:
    """Models of roles: a path is found beside its file, a tuned one has the shape of what it was tuned from."""
    for key, model in [one for one in piece.given.items() if one[0].startswith("roles.") and one[0].endswith(".model")]:
        if not isinstance(model.value, str) or "\0" in model.value:
            continue
        full = located(model.value, folder)
        if os.path.exists(full):
            piece.given[key] = Given(full, model.where)
        elif shape := shape_of(model.value):
            piece.given[key] = Given(_shaped(shape), model.where)
            piece.ignored.append(Ignored(f"{model.where} {model.value}", str(shape)))


def _shaped(shape: Shape) -> str | dict[str, str]:
    """What a plan says of a model of this shape: the catalogue's; once tuned, its files may have another dtype."""
    return {"name": shape.base, "dtype": "bfloat16"} if shape.tuned and catalogued(shape.base) else shape.base


def merged(pieces: Sequence[Piece]) -> Document:
    """One plan as plain data, with the place of every key. Of two pieces that say something of a key the higher rank's
    word counts; equal ranks that differ are an error that names both places. Raises InputError."""
    chosen: dict[str, tuple[int, Given]] = {}
    problems: list[Problem] = []
    for piece in pieces:
        for path, given in piece.given.items():
            before = chosen.get(path)
            if before is None or before[1].value == AUTO:
                chosen[path] = (piece.rank, given)
            elif given.value in (AUTO, before[1].value) or piece.rank < before[0]:
                continue
            elif piece.rank > before[0]:
                chosen[path] = (piece.rank, given)
            else:
                found = f"{before[1].value!r} at {before[1].where} and {given.value!r} at {given.where}"
                problems.append(
                    Problem(path, found, "both files say it, and differ", "Make them agree, or leave one out.")
                )
    if problems:
        raise InputError(problems)
    data: dict[str, Any] = {}
    places: dict[Path, str] = {}
    for path, (_, given) in chosen.items():
        if given.value != AUTO:
            _put(data, places, path, given)
    for piece in sorted(pieces, key=lambda piece: -piece.rank):
        for path, filled in piece.filled.items():
            if path not in chosen or chosen[path][1].value == AUTO:
                _put(data, places, path, Given(filled.value, f"{DEFAULT}{filled.why}"))
    return Document(data, places)


def _put(data: dict[str, Any], places: dict[Path, str], dotted: str, given: Given) -> None:
    path = tuple(dotted.split("."))
    part = data
    for key in path[:-1]:
        inner = part.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        part = inner
    if path[-1] not in part:
        part[path[-1]] = given.value
        places[path] = given.where


def _with(draft: Draft, pieces: Sequence[Piece]) -> Draft:
    """The draft with what the pieces did not take, and what their frameworks fill in among the defaults."""
    from trainledger.plan.resolve import Default

    own = {path: filled for piece in pieces for path, filled in piece.filled.items()}
    used = tuple(one for one in draft.used if not one.where.startswith(DEFAULT))
    mine = tuple(
        Default(one.path, one.value, own[one.path].why, own[one.path].source)
        for one in draft.used
        if one.where.startswith(DEFAULT) and one.path in own
    )
    told = {one.path for piece in pieces for one in piece.unknown}
    more = (one for one in draft.unknown if one.path.removeprefix("model.") not in told)
    return replace(
        draft,
        used=used,
        defaulted=(*mine, *draft.defaulted),
        ignored=(*draft.ignored, *(one for piece in pieces for one in piece.ignored)),
        unknown=(*more, *(one for piece in pieces for one in piece.unknown)),
        uncounted=tuple(one for piece in pieces for one in piece.uncounted),
        formats=tuple((piece.name, piece.format) for piece in pieces if piece.format),
    )
