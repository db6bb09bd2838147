"""Changes of a plan as lines of the files that it came from: where the key stands, and what to write there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainledger.answer.changed import LEFT_OUT, Change, LeftOut
from trainledger.facts.format_word_row import ANY, VALUE, Word
from trainledger.facts.format_words import ALLOCATOR_PATH, ALLOCATOR_VARIABLE, SCRIPTS, WORDS
from trainledger.importers.draft import Draft, Used
from trainledger.importers.yaml_text import parse_yaml

PLACE = re.compile(r"(?P<file>.*?)(?::(?P<line>\d+))?(?: (?P<key>\S+))?")
SET = "--set "
INNER = ("{", "[")  # values that a shell takes as one word only in quotes
WORLD, DP, ACCUMULATION, GLOBAL = "parallel.world", "parallel.dp", "batch.accumulation", "global_batch"
JSONS = (".json", ".jsonc", ".json5")


@dataclass(frozen=True, slots=True)
class FileLine:
    """One line to change. `place`: `file:line` where the key stands, or the file it goes into; `text`: the line as it
    should be; `was`: the key's value there now, where it is known as the file has it; `path`: the plan's key that it
    says; `stands`: whether the key is known to stand there."""

    place: str
    text: str
    was: str
    path: str
    stands: bool = False


def changed_lines(changes: Sequence[Change], draft: Draft) -> tuple[FileLine, ...]:
    """The lines that make these changes, in the words of the files' own formats, or of the plan's where it is one.

    A key that no word is known for is said in the plan's words, for `--set`.
    """
    found = [line for change in changes for line in _lines(change, draft)]
    return tuple(dict.fromkeys(found))


def _lines(change: Change, draft: Draft) -> Iterator[FileLine]:
    used = _used(change.path, draft)
    if change.path.startswith(ALLOCATOR_PATH) and draft.formats:
        name = change.path.removeprefix(ALLOCATOR_PATH)
        text = f"{ALLOCATOR_VARIABLE}={name}:{_scalar(change.value).capitalize()}"
        yield FileLine("environment", text, "", change.path)
        return
    if not draft.formats:
        yield from _of_plan(change, draft, used)
        return
    word, file = _word(change, draft)
    if word is None and _kept(change, draft):
        return
    if change.path == WORLD:
        yield FileLine("launch", f"{_scalar(change.value)} processes in all", _was(used), change.path)
        return
    if word is not None:
        for key, template in word.lines:
            yield _of_format(change, (key, template), file, _stands(key, draft))
    elif used is not None and _key(used) and not isinstance(change.value, LeftOut):
        text = f"{_key(used)}: so that {change.path} is {_scalar(change.value)}"  # its own words are not known here
        yield FileLine(_where(used), text, "", change.path, True)
    elif not _follows(change):
        yield FileLine(SET.strip(), f"{change.path}={_scalar(change.value)}", _was(used), change.path)


def _kept(change: Change, draft: Draft) -> bool:
    """Whether files say it by something else that stays: ranks by the processes that are started, accumulation by a
    global batch."""
    if change.path != ACCUMULATION:
        return change.path == DP
    return any(one.path == "batch.global" or GLOBAL in _key(one).replace("-", "_") for one in draft.used)


def _follows(change: Change) -> bool:
    """Whether a change only makes room for a default, which the format's framework has by itself."""
    return isinstance(change.value, LeftOut)


def _of_plan(change: Change, draft: Draft, used: Used | None) -> Iterator[FileLine]:
    """A line of a plan, under the plan's own key."""
    stands = used if used is not None and used.path == change.path else None
    if used is not None and used.where.startswith(SET):
        if not isinstance(change.value, LeftOut):
            yield FileLine(SET.strip(), f"{change.path}={_scalar(change.value)}", _was(stands), change.path, True)
        return
    file = next((_file(one.where) for one in draft.used if one.where and not one.where.startswith(SET)), "plan")
    place = used.where if used is not None else _under(file, change.path)
    key = change.path.rpartition(".")[-1]
    if isinstance(change.value, LeftOut):
        if used is not None:
            yield FileLine(place, f"take {key} out", _was(stands), change.path, True)
        return
    yield FileLine(place, _styled(file, key, _scalar(change.value)), _was(stands), change.path, stands is not None)


def _under(file: str, key: str) -> str:
    """A file, and the section of it that a dotted key goes into."""
    section = key.rpartition(".")[0]
    return f"{file}, under {section}" if section else file


def _styled(file: str, key: str, value: str) -> str:
    """A key and its value (as YAML has it) as the file's own language writes them."""
    if file.endswith(SCRIPTS) or key.startswith("--"):
        flag = f"--{key.removeprefix('--')}"
        return (
            f"{flag} '{json.dumps(parse_yaml(value, '').data)}'" if value[:1] in INNER else f"{flag} {value}".rstrip()
        )
    if file.endswith(JSONS):
        return f'"{key}": {json.dumps(parse_yaml(value, "").data)}'
    if file.endswith(".toml"):
        return f"{key} = {json.dumps(parse_yaml(value, '').data)}"
    return f"{key}: {value}"


def _word(change: Change, draft: Draft) -> tuple[Word | None, str]:
    """The word of one of the files' formats for a change, and that file: of several, one whose key stands there."""
    found = [
        (word, file)
        for word in WORDS
        if word.path == change.path and word.value in (ANY, change.value)
        for file, name in draft.formats
        if name.startswith(word.formats)
    ]
    for word, file in found:
        held = [_stands(key, draft) for key, _ in word.lines]
        if any(used is not None and _file(used.where).endswith(file) for used in held):
            return word, file
    return found[0] if found else (None, "")


def _of_format(change: Change, line: tuple[str, str], file: str, used: Used | None) -> FileLine:
    """A line of an outside file: where its key stands, or in which section it is added."""
    key, template = line
    value = template.replace(VALUE, _scalar(change.value))
    known = (_key(used) if used else "") or key
    own = _file(used.where) if used else file
    place = _where(used) if used else _under(own, key)
    last = known if known.startswith("--") else known.rpartition(".")[-1]
    last = last if own.endswith(SCRIPTS) or used else last.replace("-", "_")  # a flag's name as a file's key
    was = _was(used) if template == VALUE else ""
    return FileLine(place, _styled(own, last, value), was, change.path, used is not None)


def _used(path: str, draft: Draft) -> Used | None:
    """The key that was given, or the first below it."""
    exact = [one for one in draft.used if one.path == path]
    return next(iter(exact or [one for one in draft.used if one.path.startswith(f"{path}.")]), None)


def _stands(key: str, draft: Draft) -> Used | None:
    """The key of the plan that stands under this key of a file."""
    plain = key.rpartition(".")[-1].replace("-", "_")
    for one in draft.used:
        own = _key(one).lstrip("-").replace("-", "_")
        if own in (key.replace("-", "_"), plain) and own:
            return one
    return None


def _key(used: Used) -> str:
    match = PLACE.fullmatch(used.where)
    return (match["key"] if match else "") or ""


def _file(where: str) -> str:
    match = PLACE.fullmatch(where)
    return match["file"] if match else where


def _where(used: Used) -> str:
    return used.where.removesuffix(f" {_key(used)}") if _key(used) else used.where


def _was(used: Used | None) -> str:
    return "" if used is None else _scalar(used.value)


def _scalar(value: Any) -> str:
    """A value on one line of YAML."""
    if value is LEFT_OUT:
        return ""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, dict):
        inner = ", ".join(f"{name}: {_scalar(part)}" for name, part in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_scalar, value))
        return f"[{inner}]"
    return str(value)
