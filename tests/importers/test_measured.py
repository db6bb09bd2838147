"""`--measured`: files of run records, texts, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.answer.test_fit import BASE
from trainledger.answer.changed import Change
from trainledger.base.problems import InputError
from trainledger.base.units import GIB, MIB
from trainledger.importers.measured import measured_runs


def test_a_text() -> None:
    text = "reserved=11GiB,allocated=9000MiB,batch.micro_batch=1,adapter.targets=[q_proj, v_proj]"
    (run,) = measured_runs((text,), BASE)
    assert run.sizes == (("reserved", 11 * GIB), ("allocated", 9000 * MIB))
    assert run.changes == (Change("batch.micro_batch", 1), Change("adapter.targets", ["q_proj", "v_proj"]))
    assert not run.steps


def test_a_file_of_records(tmp_path: Path) -> None:
    record = {
        "id": "one", "plan": BASE, "source": {}, "confidence": "A",
        "measured": {"metric": "allocated_peak", "bytes": 5 * MIB, "extra": {"reserved_peak": 6 * MIB, "other": 1}},
    }  # fmt: skip
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join([json.dumps(record), json.dumps({**record, "id": "two"})]), encoding="utf-8")
    first, second = measured_runs((str(path),), BASE)
    assert dict(first.sizes) == {"allocated": 5 * MIB, "reserved": 6 * MIB}
    assert (first.steps, second.name) == (True, "two")
    record["measured"] = {"metric": "allocated_peak", "bytes": None, "outcome": "oom"}
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(InputError, match="states no peak"):
        measured_runs((str(path),), BASE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch.micro_batch=1", "Name an amount"),
        ("reservd=11GiB", "Did you mean reserved"),
        ("reserved=eleven", "a size of 1 MiB or more is needed"),
        ("reserved=11", "a size of 1 MiB or more is needed"),
        ("reserved=11GiB,batch.micro_batch", "found 'batch.micro_batch'"),
        ("no-such-file.jsonl", "--measured"),
    ],
)
def test_wrong_texts(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        measured_runs((text,), BASE)
