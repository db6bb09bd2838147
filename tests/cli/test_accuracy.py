"""`trainledger accuracy`: what it refuses of its files and options."""

from __future__ import annotations

from pathlib import Path


def test_a_file_without_records_is_named(run, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("\n\n", encoding="utf-8")
    code, _, err = run("accuracy", str(path))
    assert (code, err) == (2, f"{path}: input: no records in it; a run record on each line is needed.\n")


def test_two_forms_at_once_are_refused(run, tmp_path: Path) -> None:
    code, _, err = run("accuracy", str(tmp_path / "records.jsonl"), "--json", "--markdown")
    assert code == 2
    assert "--markdown: given beside --json" in err
