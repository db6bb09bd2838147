"""Devices: how much memory a process gets on each, at which bandwidth, and where that is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches

from trainledger.base.places import Place
from trainledger.base.problems import InputError, Problem
from trainledger.base.sources import Basis, Source
from trainledger.base.units import format_size, parse_size
from trainledger.facts.device_rows import Device, Tier
from trainledger.facts.devices_nvidia import NVIDIA_DEVICES
from trainledger.facts.devices_other import OTHER_DEVICES
from trainledger.facts.devices_rtx import RTX_DEVICES
from trainledger.facts.links import Link

__all__ = ["DEVICES", "Device", "Tier", "custom_device", "device_from", "find_device"]

DEVICES: dict[str, Device] = {device.name: device for device in (*NVIDIA_DEVICES, *RTX_DEVICES, *OTHER_DEVICES)}

# Words that drivers and shops add to a name without making it another card.
NOISE = frozenset(
    "nvidia geforce tesla quadro amd instinct radeon intel google habana cloud gpu graphics sxm sxm2 sxm3 sxm4 sxm5"
    " sxm6 hbm2 hbm2e hbm3 hbm3e generation blackwell workstation edition".split()
)
USER = Source("given by the user", "the plan's `device`")
SHOWN = 4
NEAR = 0.5
DEVICE_KEYS = ("name", "memory", "bandwidth", "link", "architecture", "tiers")
TIER_KEYS = ("name", "bytes", "bandwidth", "shared_by", "place")
# What a tier's name says of its kind, where it has no `place`; the host's memory where it says nothing.
TIER_WORDS: dict[Place, tuple[str, ...]] = {
    Place.ON_CHIP: ("sram", "on-chip", "on chip", "scratchpad", "vmem"),
    Place.NVME: ("nvme", "ssd", "flash"),
    Place.REMOTE: ("remote", "network", "pool", "fabric"),
}


def _key(name: str) -> str:
    """`NVIDIA H100 80GB HBM3`, `h100_80gb` and `H100-80GB` alike: `h10080gb`."""
    words = re.split(r"[^a-z0-9]+", name.lower().replace("(r)", "").replace("(tm)", ""))
    return "".join(word for word in words if word not in NOISE)


def _keys(device: Device) -> tuple[str, ...]:
    keys = [_key(name) for name in (device.name, *device.aliases)]
    if re.match(r"rtx\d", device.name):  # `4090` is what people write
        keys.append(keys[0].removeprefix("rtx"))
    return tuple(dict.fromkeys(keys))


BY_KEY: dict[str, Device] = {key: device for device in DEVICES.values() for key in _keys(device)}


def _suggestions(key: str) -> list[str]:
    """Names of devices that the key may have meant: its memory variants first, then what is spelled alike."""
    variants = [BY_KEY[known].name for known in BY_KEY if key and known.startswith(key)]
    alike = [BY_KEY[known].name for known in get_close_matches(key, BY_KEY, n=SHOWN, cutoff=NEAR)]
    return list(dict.fromkeys([*variants, *alike]))[:SHOWN]


def find_device(name: str, path: str = "device") -> Device:
    """The device of that name, whatever its case, separators and vendor's prefix.

    A name that stands for several sizes (`a100`) is refused with the sizes, not guessed. Raises InputError.
    """
    device = BY_KEY.get(_key(name))
    if device is None:
        close = _suggestions(_key(name))
        allowed = f"nearest: {', '.join(close)}" if close else "not near any known device"
        fix = "`trainledger devices` lists all; another one: {name: ..., memory: 80GB}"
        raise InputError([Problem(path, f"no device {name!r}", allowed, fix)])
    return device


def custom_device(name: str, memory_bytes: int, base: Device | None = None) -> Device:
    """A device of the user's own with that many usable bytes.

    What `base` knows otherwise (architecture, bandwidth, further tiers) stays. Without `base` nothing
    but the size is known. Raises InputError when the size is not above zero.
    """
    if memory_bytes <= 0:
        raise InputError(
            [Problem("device.memory", f"{memory_bytes} bytes", "a size above zero", "write 80GB or 80GiB")]
        )
    label = format_size(memory_bytes, "auto")
    if base is None:
        own = (Tier("device memory", memory_bytes, place=Place.DEVICE),)
        return Device(name, "user", "unknown", label, memory_bytes, Basis.ASSUMED, USER, None, USER, tiers=own)
    tiers = (replace(base.tiers[0], bytes=memory_bytes), *base.tiers[1:])
    return replace(
        base,
        name=name,
        label=label,
        total_bytes=memory_bytes,
        basis=Basis.ASSUMED,
        source=USER,
        aliases=(),
        tiers=tiers,
    )


def device_from(given: str | Mapping[str, object] | None, path: str = "device") -> Device | None:
    """The device that a plan's `device` means: a name, `{name, memory?, bandwidth?, link?, architecture?, tiers?}`, or
    none.

    `memory` replaces the usable bytes of a known device, or makes a new one; `bandwidth` is that of its memory and
    `link` that of the way to the host, in bytes per second. `tiers` adds memory beside it, each `{name, bytes,
    bandwidth?, shared_by?, place?}`. Raises InputError with every problem found.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return find_device(given, path)
    problems = _unknown_keys(given, DEVICE_KEYS, path)
    name, memory = given.get("name"), given.get("memory")
    if not isinstance(name, str) or not name.strip():
        problems.append(Problem(f"{path}.name", repr(name), "a device's name, or a name of your own"))
    size = None if memory is None else _size(memory, f"{path}.memory", problems)
    tiers = _tiers(given.get("tiers"), f"{path}.tiers", problems)
    speeds = {
        key: _size(given[key], f"{path}.{key}", problems) for key in ("bandwidth", "link") if given.get(key) is not None
    }
    if problems or not isinstance(name, str):
        raise InputError(problems)
    base = BY_KEY.get(_key(name)) if size is not None else find_device(name, path)
    device = custom_device(name, size, base) if size is not None else base
    if device is None:
        return None
    device = replace(device, tiers=(*device.tiers, *tiers)) if tiers else device
    return _told(device, speeds, given.get("architecture"))


def _told(device: Device, speeds: Mapping[str, int], architecture: object) -> Device:
    """The device with bandwidths and the architecture that the user gives."""
    if speed := speeds.get("bandwidth"):
        own = replace(device.tiers[0], bandwidth=speed)
        device = replace(device, bandwidth=speed, tiers=(own, *device.tiers[1:]))
    if way := speeds.get("link"):
        device = replace(device, link=Link("link to the host", way, USER))
    return replace(device, architecture=str(architecture)) if architecture else device


def _unknown_keys(given: Mapping[str, object], known: tuple[str, ...], path: str) -> list[Problem]:
    return [
        Problem(f"{path}.{key}", "an unknown key", f"the keys are {', '.join(known)}")
        for key in given
        if key not in known
    ]


def _size(value: object, path: str, problems: list[Problem]) -> int:
    """Bytes of a size as written, above zero; a problem is added and 0 returned otherwise."""
    try:
        size = parse_size(value) if isinstance(value, int | float | str) else 0
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        problems.append(Problem(path, repr(value), "a size above zero, such as 80GB or 80GiB"))
    return size


def _tiers(given: object, path: str, problems: list[Problem]) -> tuple[Tier, ...]:
    if given is None:
        return ()
    if not isinstance(given, list | tuple):
        problems.append(Problem(path, repr(given), "a list of {name, bytes, bandwidth?, shared_by?, place?}"))
        return ()
    return tuple(_tier(item, f"{path}.{position}", problems) for position, item in enumerate(given))


def _tier(item: object, path: str, problems: list[Problem]) -> Tier:
    if not isinstance(item, Mapping):
        problems.append(Problem(path, repr(item), "a mapping with name and bytes"))
        return Tier("", 0)
    problems.extend(_unknown_keys(item, TIER_KEYS, path))
    name, shared = item.get("name"), item.get("shared_by", 1)
    if not isinstance(name, str) or not name.strip():
        problems.append(Problem(f"{path}.name", repr(name), "a name"))
    if isinstance(shared, bool) or not isinstance(shared, int) or shared < 1:
        problems.append(Problem(f"{path}.shared_by", repr(shared), "how many devices share it, 1 or more"))
        shared = 1
    bandwidth = item.get("bandwidth")
    speed = None if bandwidth is None else _size(bandwidth, f"{path}.bandwidth", problems)
    size = _size(item.get("bytes"), f"{path}.bytes", problems)
    return Tier(str(name), size, speed, shared, _place(item.get("place"), str(name), path, problems))


def _place(given: object, name: str, path: str, problems: list[Problem]) -> Place:
    """The kind of memory that a tier is: as said, or by its name."""
    if given is None:
        words = name.lower()
        return next((place for place, known in TIER_WORDS.items() if any(word in words for word in known)), Place.HOST)
    if isinstance(given, str) and given in tuple(Place):
        return Place(given)
    problems.append(Problem(f"{path}.place", repr(given), f"one of {', '.join(Place)}"))
    return Place.HOST
