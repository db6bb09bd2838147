"""Recorded histories of real devices, where a folder of them is at hand: the replay does what the device did."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainledger.evidence.compare import compare
from trainledger.evidence.snapshot import open_snapshot

FOLDER = "TRAINLEDGER_SNAPSHOTS"


@pytest.mark.skipif(FOLDER not in os.environ, reason=f"{FOLDER} names no folder of snapshots with an index.json")
def test_real_devices() -> None:
    """The reserved peak to the byte, and every allocation at the address where the device's allocator put it."""
    folder = Path(os.environ[FOLDER])
    rows = json.loads((folder / "index.json").read_text(encoding="utf-8"))["snapshots"]
    assert rows
    for row in rows:
        found = compare(open_snapshot(folder / row["file"]))
        assert found.first is None, f"{row['file']}: entry {found.first.entry}: {found.first.what}"
        assert found.exact
        assert (found.recorded_peak, found.recorded_end) == (row["reserved_peak"], row["reserved_end"])
        assert found.replay.ends.reserved == row["reserved_end"]
