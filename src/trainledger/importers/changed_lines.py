"""Changes of a plan as lines of the files that it came from: where the key stands, and what to write there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainledger.answer.changed import LEFT_OUT, Change, LeftOut
from trainledger.facts.format_words import ALLOCATOR_PATH, ALLOCATOR_VARIABLE, ANY, SCRIPTS, VALUE, WORDS, Word
from trainledger.importers.document import SET
from trainledger.importers.draft import Draft, Used
from trainledger.importers.exported_lines import Exporter, Key, same_key, way_of
from trainledger.importers.yaml_text import parse_yaml

PLACE = re.compile(r"(?P<file>.*?)(?::(?P<line>\d+))?(?: (?P<key>\S+))?")
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
    """The lines that make these changes: of the plan where it is one, else in the words of the files' own exporter, or
    of a table where their format has none.

    A key that neither knows is said in the plan's words, for `--set`.
    """
    said = _exported(changes, draft)
    found = [line for change in changes for line in _lines(change, draft, said)]
    if said is not None:
        found += [line for key in said.keys.get("", ()) for line in _of_key(key, key.path, draft)]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Exported:
    """Keys of an exporter by the change that they are of (empty: of none alone), and changes that it does not say."""

    keys: Mapping[str, Sequence[Key]]
    left: tuple[Change, ...]


def _exported(changes: Sequence[Change], draft: Draft) -> Exported | None:
    """What the exporter of a draft's files says; None without one, or where it cannot say the plan."""
    way = way_of(draft)
    if way is None:
        return None
    exporter, some = Exporter(draft, way), [one for one in changes if not _allocates(one)]
    said = exporter.keys(some) or exporter.each(some)
    if said is None:
        return None
    keys: dict[str, list[Key]] = {}
    for key in said[0]:
        own = next((one.path for one in changes if same_key(key.path, one.path)), "")
        keys.setdefault(own, []).append(key)
    return Exported(keys, said[1])


def _allocates(change: Change) -> bool:
    return change.path.startswith(ALLOCATOR_PATH)


def _lines(change: Change, draft: Draft, said: Exported | None) -> Iterator[FileLine]:
    used = _used(change.path, draft)
    if _allocates(change) and draft.formats:
        name = change.path.removeprefix(ALLOCATOR_PATH)
        text = f"{ALLOCATOR_VARIABLE}={name}:{_scalar(change.value).capitalize()}"
        yield FileLine("environment", text, "", change.path)
    elif not draft.formats:
        yield from _of_plan(change, draft, used)
    elif change.path == WORLD:
        yield FileLine("launch", f"{_scalar(change.value)} processes in all", _was(used), change.path)
    elif said is not None:
        for key in said.keys.get(change.path, ()):
            yield from _of_key(key, change.path, draft)
        if change in said.left and not _kept(change, draft):
            yield from _in_the_plan_s(change, used)
    else:
        yield from _in_words(change, draft, used)


def _in_words(change: Change, draft: Draft, used: Used | None) -> Iterator[FileLine]:
    """Lines of a format without an exporter."""
    word, file = _word(change, draft)
    if word is None and not _kept(change, draft):
        yield from _in_the_plan_s(change, used)
    for key, template in word.lines if word else ():
        yield _of_format(change, (key, template), file, _stands(key, draft))


def _in_the_plan_s(change: Change, used: Used | None) -> Iterator[FileLine]:
    """A change that no word of a format is known for. One that makes room for a default is none: the format's framework
    has it by itself."""
    if isinstance(change.value, LeftOut):
        return
    if used is not None and _key(used):
        text = f"{_key(used)}: so that {change.path} is {_scalar(change.value)}"  # its own words are not known here
        yield FileLine(_where(used), text, "", change.path, True)
    else:
        yield FileLine(SET.strip(), f"{change.path}={_scalar(change.value)}", _was(used), change.path)


def _of_key(key: Key, path: str, draft: Draft) -> Iterator[FileLine]:
    """The line of an exporter's key: where the user's own key for it stands, or in which section it is added; none for
    a key that goes and does not stand."""
    used = _stands(key.name, draft) or _alone(key, draft)
    known = (_key(used) if used else "") or key.name
    own = _file(used.where) if used and _key(used) else key.file
    place = _where(used) if used and _key(used) else _under(own, key.name)
    last = known if known.startswith("--") else known.rpartition(".")[-1]
    was = "" if used is None or key.was is None else _scalar(key.was)
    if not key.gone:
        yield FileLine(place, _typed(own, last, key.value), was, path, used is not None)
    elif used is not None:
        yield FileLine(place, f"take {last} out", was, path, True)


def _alone(key: Key, draft: Draft) -> Used | None:
    """The one key of the user's files that says the same key of the plan, under another name."""
    found = [one for one in draft.used if one.path == key.path and _key(one) and not one.where.startswith(SET)]
    return found[0] if len(found) == 1 and key.was == found[0].value else None


def _kept(change: Change, draft: Draft) -> bool:
    """Whether files say it by something else that stays: ranks by the processes that are started, accumulation by a
    global batch."""
    if change.path != ACCUMULATION:
        return change.path == DP
    return any(one.path == "batch.global" or GLOBAL in _key(one).replace("-", "_") for one in draft.used)


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
    if file.endswith((*SCRIPTS, *JSONS, ".toml")) or key.startswith("--"):
        inner = value[:1] in INNER or not (file.endswith(SCRIPTS) or key.startswith("--"))
        return _typed(file, key, parse_yaml(value, "").data if inner else value)
    return f"{key}: {value}"


def _typed(file: str, key: str, value: Any) -> str:
    """A key and its value as the file's own language writes them."""
    if file.endswith(SCRIPTS) or key.startswith("--"):
        text = " ".join(map(str, value)) if isinstance(value, list | tuple) else _scalar(value)
        text = f"'{json.dumps(value)}'" if isinstance(value, dict) else text
        return f"--{key.removeprefix('--')} {text}".rstrip()
    if file.endswith(JSONS):
        return f'"{key}": {json.dumps(value)}'
    if file.endswith(".toml"):
        return f"{key} = {json.dumps(value)}"
    return f"{key}: {_scalar(value)}"


def _word(change: Change, draft: Draft) -> tuple[Word | None, str]:
    """The word of one of the files' formats for a change, and that file: of several, one whose key stands there."""
    found = [
        (word, file)
        for word in WORDS
        if word.path == change.path and word.value in (ANY, change.value)
        for file, name in draft.formats
        if name.startswith(word.format)
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
    key = key.lstrip("-")
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
