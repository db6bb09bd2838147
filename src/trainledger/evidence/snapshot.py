"""Memory snapshots of torch.cuda.memory: a file of plain containers in, segments and trace entries out.

The file is a pickle. It is read by an unpickler that knows no class and no function, so nothing in it can run.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainledger.allocator.conf import Conf, parse_conf, read_conf
from trainledger.base.problems import InputError, wrong
from trainledger.facts.limits import SNAPSHOT_EVENTS, SNAPSHOT_FILE

EMPTY_POOL = (0, 0)
_USED = {"active_allocated": True, "active_awaiting_free": True, "active_pending_free": True, "inactive": False}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the trace, as the allocator wrote it: sizes are those asked for (bytes)."""

    action: str
    address: int
    size: int
    stream: int


@dataclass(frozen=True, slots=True)
class RecordedBlock:
    """A block of a segment at the end (bytes); `used`: a tensor's, or one that waits for a stream."""

    address: int
    size: int
    used: bool


@dataclass(frozen=True, slots=True)
class RecordedSegment:
    """A segment at the end (bytes)."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    blocks: tuple[RecordedBlock, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One device's part of a snapshot: settings, segments at the end, and the trace that led there."""

    conf: Conf
    segments: tuple[RecordedSegment, ...]
    entries: tuple[Entry, ...]


class _Plain(pickle.Unpickler):
    """Builds None, bools, numbers, texts, bytes, lists, tuples, sets and dicts, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}; a snapshot holds plain values only")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to objects outside of it")


def open_snapshot(path: str | Path, device: int = 0) -> Snapshot:
    """The snapshot in a file. Raises InputError: no such file, too large, not plain, not a snapshot."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(SNAPSHOT_FILE.value + 1)
    except OSError as error:
        raise wrong(str(path), f"cannot be read ({error.strerror})", "a memory snapshot") from None
    return read_snapshot(data, device, str(path))


def read_snapshot(data: bytes, device: int = 0, where: str = "snapshot") -> Snapshot:
    """The snapshot in the bytes of a pickle. Raises InputError: too large, not plain, not a snapshot."""
    if len(data) > SNAPSHOT_FILE.value:
        raise wrong(where, "is larger than that", f"at most {SNAPSHOT_FILE.value} bytes")
    try:
        raw = _Plain(io.BytesIO(data)).load()
    except Exception as error:  # whatever bytes a file holds: the unpickler raises nearly every kind of error
        raise wrong(where, f"is no pickle of plain values ({error})", "a memory snapshot") from None
    try:
        return _snapshot(raw, device)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        text = f"lacks what a snapshot of device {device} has ({type(error).__name__}: {error})"
        raise wrong(where, text, "a file of torch.cuda.memory._dump_snapshot, with its history") from None


def _snapshot(raw: Any, device: int) -> Snapshot:
    trace = raw["device_traces"][device]
    if len(trace) > SNAPSHOT_EVENTS.value:
        raise wrong("device_traces", f"{len(trace)} entries", f"at most {SNAPSHOT_EVENTS.value}")
    mine = [one for one in raw["segments"] if one["device"] == device]
    pools = {tuple(one.get("segment_pool_id", EMPTY_POOL)) for one in mine} - {EMPTY_POOL}
    if pools:
        raise wrong("segments", f"{len(pools)} private pools, as CUDA graphs make", "the default pool alone")
    segments = tuple(_segment(one) for one in mine)
    return Snapshot(_conf(raw, segments), segments, tuple(_entry(one) for one in trace))


def _entry(raw: Any) -> Entry:
    return Entry(str(raw["action"]), _whole(raw.get("addr", 0)), _whole(raw["size"]), _whole(raw["stream"]))


def _segment(raw: Any) -> RecordedSegment:
    address, blocks = _whole(raw["address"]), []
    at = address
    for block in raw["blocks"]:
        size = _whole(block["size"])
        blocks.append(RecordedBlock(at, size, _USED[block["state"]]))
        at += size
    size = _whole(raw["total_size"])
    if at != address + size:
        raise ValueError(f"the blocks of the segment at {address} do not add up to it")
    expandable = bool(raw.get("is_expandable", False))
    return RecordedSegment(
        address, size, _whole(raw["stream"]), raw["segment_type"] == "small", expandable, tuple(blocks)
    )


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no size, address or stream")
    return value


def _conf(raw: Any, segments: tuple[RecordedSegment, ...]) -> Conf:
    """The settings that the snapshot names; older ones name none, and then the segments show what they can."""
    settings = raw.get("allocator_settings") or {}
    text = str(settings.get("PYTORCH_CUDA_ALLOC_CONF") or "")
    if text:
        return parse_conf(text)
    return read_conf({"expandable_segments": any(one.expandable for one in segments)})
