"""Reading snapshots: plain values only, and one message for whatever else a file may hold."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.evidence.recorder import record
from trainledger.allocator.conf import Conf
from trainledger.allocator.stream import Builder
from trainledger.base.problems import InputError
from trainledger.base.units import MIB
from trainledger.evidence.snapshot import open_snapshot, read_snapshot


def small() -> dict[str, Any]:
    """A snapshot of two tensors, one of them freed."""
    builder = Builder()
    builder.free(builder.alloc(3 * MIB))
    builder.alloc(100)
    return record(builder.build())


class Evil:
    """Runs a command when an unpickler lets it."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("false",)


def test_reads(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(small()))
    snapshot = open_snapshot(path)
    assert [one.action for one in snapshot.entries] == [
        "segment_alloc", "alloc", "free_requested", "free_completed", "segment_alloc", "alloc",
    ]  # fmt: skip
    assert [(one.size, one.small, [block.used for block in one.blocks]) for one in snapshot.segments] == [
        (20 * MIB, False, [False]),
        (2 * MIB, True, [True, False]),
    ]
    assert snapshot.conf == Conf()


def test_settings() -> None:
    raw = small()
    raw["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}
    assert read_snapshot(pickle.dumps(raw)).conf.max_split == 64 * MIB
    del raw["allocator_settings"]
    raw["segments"][0]["is_expandable"] = True
    assert read_snapshot(pickle.dumps(raw)).conf.expandable


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_in_a_file_can_run(protocol: int) -> None:
    raw = small() | {"more": Evil()}
    with pytest.raises(InputError, match=r"it names \w+\.system; a snapshot holds plain values only"):
        read_snapshot(pickle.dumps(raw, protocol))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"no pickle",
        b"(lp0\n.",
        pickle.dumps([]),
        pickle.dumps({"segments": []}),
        pickle.dumps(7),
        b"P1\n.",
    ],
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        read_snapshot(data)


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("segments", "total_size", 5),
        ("segments", "stream", None),
        ("segments", "blocks", [{"size": -5, "state": "inactive"}]),
        ("segments", "blocks", [{"size": 20 * MIB, "state": "strange"}]),
        ("segments", "segment_pool_id", (0, 1)),
        ("trace", "size", "many"),
        ("trace", "addr", True),
    ],
)
def test_strange_values_are_refused(where: str, key: str, value: object) -> None:
    raw = small()
    (raw["segments"] if where == "segments" else raw["device_traces"][0])[0][key] = value
    with pytest.raises(InputError):
        read_snapshot(pickle.dumps(raw))


def test_a_device_without_a_trace_is_refused() -> None:
    with pytest.raises(InputError, match="device 3"):
        read_snapshot(pickle.dumps(small()), device=3)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        open_snapshot("nowhere.pickle")
