"""Settings of the caching allocator, from PYTORCH_CUDA_ALLOC_CONF's text or from a mapping of the same names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainledger.allocator.divisions import read_divisions
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.allocator import CUDA, Allocator
from trainledger.facts.allocator_settings import (
    ALLOCATOR_TEXTS,
    BACKENDS,
    FIXED,
    INTERVALS,
    NATIVE,
    SETTINGS,
    Setting,
    Value,
)

_PARTS = re.compile(r"[,:\[\]]|[^,:\[\]]+")
_WHOLE = re.compile(r"[+-]?\d+")
_REAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Conf:
    """What the allocator is told (bytes; None: no bound).

    `divisions` by power of two (facts `INTERVALS`), empty for none; `collect`: garbage_collection_threshold, 0 for
    none; `fraction`: per_process_memory_fraction, of the device; `shared`: bytes of a shared large segment.
    """

    expandable: bool = False
    max_split: int | None = None
    rounding: int = CUDA.shared
    divisions: tuple[int, ...] = ()
    collect: float = 0.0
    fraction: float = 1.0
    shared: int = CUDA.shared
    backend: str = NATIVE

    @property
    def exact(self) -> bool:
        """Whether the simulator stands for this backend; the driver's own pool (cudaMallocAsync) it does not know."""
        return self.backend == NATIVE

    def rounded(self, size: int, rules: Allocator = CUDA) -> int:
        """Bytes of the smallest block for a request of `size` bytes (round_size in the allocator's source)."""
        divisions = self.divisions_of(size)
        if divisions <= 1 or size <= rules.granule * divisions:
            return max(rules.rounded(size), rules.granule)
        floor = 1 << (size.bit_length() - 1)
        step = floor // divisions
        return size if size == floor else -(-size // step) * step

    def divisions_of(self, size: int) -> int:
        """The number of divisions between powers of two that holds for a request of `size` bytes; 0 for none."""
        if not self.divisions:
            return 0
        place = size.bit_length() - INTERVALS.first.bit_length()
        return self.divisions[min(max(place, 0), len(self.divisions) - 1)]


DEFAULT = Conf()


def parse_conf(text: str, path: str = "PYTORCH_CUDA_ALLOC_CONF") -> Conf:
    """The settings of PYTORCH_CUDA_ALLOC_CONF's text, read as PyTorch reads it. Raises InputError, all problems."""
    return _conf(_pairs(_parts(text), path), path)


def settings_of(text: str, path: str = "PYTORCH_CUDA_ALLOC_CONF") -> dict[str, str]:
    """The settings of PYTORCH_CUDA_ALLOC_CONF's text by name, each value as it is spelt there. Raises InputError."""
    parse_conf(text, path)
    return {name: "".join(parts) for name, parts in _pairs(_parts(text), path)}


def read_conf(settings: Mapping[str, Any], path: str = "stack.allocator") -> Conf:
    """The settings of a mapping, such as a plan's `stack.allocator`: true and false, numbers, and divisions as a
    number, a text as in the environment, or a mapping of MiB to divisions. Raises InputError, all problems."""
    return _conf(((str(name), _spelt(value)) for name, value in settings.items()), path)


def conf_of(settings: Mapping[str, Any], environment: Mapping[str, str], architecture: str = "") -> Conf:
    """A plan's `stack.allocator`, or without one what its environment says, as that architecture's build of PyTorch
    takes it. Raises InputError."""
    made = _given(settings, environment)
    return replace(made, expandable=False) if architecture.startswith(FIXED.architectures) else made


def _given(settings: Mapping[str, Any], environment: Mapping[str, str]) -> Conf:
    if settings:
        return read_conf(settings)
    name = next((name for name in ALLOCATOR_TEXTS if name in environment), "")
    return parse_conf(environment[name], f"stack.env.{name}") if name else DEFAULT


Pair = tuple[str, list[str]]


def _parts(text: str) -> list[str]:
    return _PARTS.findall("".join(text.split()))


def _spelt(value: Any) -> list[str]:
    """A value of a mapping as the environment's text would give it, in parts."""
    if isinstance(value, Mapping):
        return _parts("[" + ",".join(f"{size}:{count}" for size, count in value.items()) + "]")
    if isinstance(value, list | tuple):
        return _parts("[" + ",".join(str(one) for one in value) + "]")
    return _parts(str(value))


def _pairs(parts: list[str], path: str) -> Iterator[Pair]:
    """Names with the parts of their values. Raises InputError where the text is not `name:value,name:value`."""
    at = 0
    while at < len(parts):
        name, rest = parts[at], parts[at + 1 : at + 3]
        if rest[:1] != [":"] or len(rest) < 2 or rest[1] in ",:]":
            raise InputError([_wrong(path, name, "name:value pairs with commas between, such as backend:native")])
        end = at = at + 2
        if parts[at] == "[":
            if "]" not in parts[at:]:
                raise InputError([_wrong(f"{path}.{name}", "".join(parts[at:]), "a list ends with ]")])
            end = parts.index("]", at)
        yield name, parts[at : end + 1]
        at = end + 1
        if at < len(parts) and parts[at] != ",":
            raise InputError([_wrong(path, f"{parts[at]} after {name}", "a comma comes between settings")])
        at += 1


def _wrong(path: str, found: str, allowed: str, fix: str = "") -> Problem:
    return Problem(path, repr(found) if found else "nothing", allowed, fix)


def _conf(pairs: Iterator[Pair], path: str) -> Conf:
    conf, problems = DEFAULT, []
    for name, value in pairs:
        setting = SETTINGS.get(name)
        if setting is None:
            near = nearest(name, SETTINGS)
            fix = f"Did you mean {near}?" if near else f"Known are {', '.join(SETTINGS)}."
            problems.append(_wrong(path, name, "a setting of PyTorch's caching allocator", fix))
            continue
        try:
            read = _read(setting, value)
        except ValueError as error:
            allowed = f"{setting.value}{f', at least {setting.least}' if setting.least else ''}"
            problems.append(_wrong(f"{path}.{name}", "".join(value), str(error) or allowed))
            continue
        conf = _with(conf, setting, read)
    if conf.max_split is not None and conf.max_split < conf.shared:
        mebibytes = conf.shared // INTERVALS.unit
        allowed = f"at least large_segment_size_mb, {mebibytes}"
        problems.append(_wrong(f"{path}.max_split_size_mb", str(conf.max_split // INTERVALS.unit), allowed))
    if problems:
        raise InputError(problems)
    return conf


def _read(setting: Setting, value: list[str]) -> Any:
    """The value of a setting. Raises ValueError, empty where the setting's own words say enough."""
    if setting.value is Value.DIVISIONS:
        return read_divisions(value)
    if len(value) != 1:
        raise ValueError
    text = value[0]
    if setting.value is Value.BACKEND:
        return _one_of(text, BACKENDS)
    if setting.value is Value.BOOL:
        return _one_of(text, ("True", "False")) == "True"
    if setting.value in (Value.FRACTION, Value.SHARE):
        match = _REAL.match(text)  # as strtod: what comes after the number is not looked at
        number = float(match[0]) if match else -1.0
        if not 0 <= number <= 1 or (setting.value is Value.FRACTION and number in (0, 1)):
            raise ValueError
        return number
    return _whole(setting, text)


def _one_of(text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise ValueError
    return text


def _whole(setting: Setting, text: str) -> int | None:
    """A whole number; a negative one wraps around in the allocator's source, so it sets no bound (None)."""
    match = _WHOLE.match(text)
    number = int(match[0]) if match else None
    if number is None or 0 <= number < setting.least or (setting.most and not 0 <= number <= setting.most):
        raise ValueError
    if setting.value is Value.POWER and number & (number - 1):
        raise ValueError
    return number if number >= 0 else None


def _with(conf: Conf, setting: Setting, read: Any) -> Conf:
    size = read * INTERVALS.unit if setting.value is Value.MEBIBYTES and read is not None else None
    if setting.name == "max_split_size_mb":
        return replace(conf, max_split=size)
    if setting.name == "max_non_split_rounding_mb":
        return replace(conf, rounding=DEFAULT.rounding if size is None else size)
    if setting.name == "large_segment_size_mb":
        return replace(conf, shared=DEFAULT.shared if size is None else size)
    field = _FIELDS.get(setting.name)
    return replace(conf, **{field: read}) if field else conf


_FIELDS = {
    "expandable_segments": "expandable",
    "roundup_power2_divisions": "divisions",
    "garbage_collection_threshold": "collect",
    "per_process_memory_fraction": "fraction",
    "backend": "backend",
}
