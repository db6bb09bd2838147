"""Keys of the run's own files that were not taken, beside the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainledger.answer.estimate import estimate
from trainledger.importers.draft import Draft
from trainledger.importers.outside import read_any
from trainledger.show.document import draft_data
from trainledger.show.estimate import View, sections
from trainledger.show.table import PLAIN, Screen

FILE = """\
base_model: Qwen/Qwen3-0.6B
datasets: [{path: a, type: alpaca}]
sequence_len: 512
micro_batch_size: 1
flash_attention: true
bf16: true
"""


def draft_of(folder: Path, more: str) -> Draft:
    path = folder / "axolotl.yaml"
    path.write_text(FILE + more, encoding="utf-8")
    return read_any([str(path)], ["device=h100-80gb"])


def shown(draft: Draft) -> dict[str, tuple[str, ...]]:
    found = sections(estimate(draft.plan), draft, View(), Screen(False, 100, PLAIN))
    return {one.title: one.text for one in found if one.text or one.rows}


def test_an_unknown_key_stands_beside_the_verdict(tmp_path: Path) -> None:
    found = shown(draft_of(tmp_path, "adaptor: lora\nlora_r: 8\n"))
    title = next(one for one in found if one.startswith("FITS"))
    assert "may not be your run" in title
    line = f"  {tmp_path}/axolotl.yaml:7 adaptor is not known; did you mean adapter? It was ignored."
    assert line in found[title]
    assert not any(one.startswith("Unknown keys") for one in found)


def test_without_one_the_verdict_says_nothing_more(tmp_path: Path) -> None:
    found = shown(draft_of(tmp_path, ""))
    title = next(one for one in found if one.startswith("FITS"))
    assert "your run" not in title
    assert not any("known" in line or "not counted" in line for line in found[title])


def test_many_are_counted_and_listed_below(tmp_path: Path) -> None:
    found = shown(draft_of(tmp_path, "".join(f"nothing_{at}: 1\n" for at in range(6))))
    title = next(one for one in found if one.startswith("FITS"))
    assert "  and 2 more, listed below" in found[title]
    assert sum("is not known" in line for line in found[title]) == 4
    assert sum("is not known" in line for line in found["Unknown keys, ignored"]) == 6


def test_keys_that_are_not_counted_are_one_line_with_their_directions(tmp_path: Path) -> None:
    found = shown(draft_of(tmp_path, "layer_offloading: true\nuse_kernels: true\nkd_alpha: 2\n"))
    text = next(lines for one, lines in found.items() if one.startswith("FITS"))
    high, low = "the ledger may be too high", "the ledger may be too low"
    assert f"  not counted: layer_offloading, use_kernels ({high}); kd_alpha ({low})" in text


def test_the_data_lists_it_among_the_ignored(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, "adaptor: lora\n")
    one = next(one for one in draft_data(draft)["ignored"] if one["path"] == "adaptor")
    assert one["why"] == "not known; did you mean adapter?"
    assert one["where"].endswith("axolotl.yaml:7 adaptor")


@pytest.mark.parametrize("verb", [("explain", "weights"), ("layout",)])
def test_verbs_without_a_verdict_name_it_on_standard_error(
    verb: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainledger.cli.main import main

    draft_of(tmp_path, "adaptor: lora\n")
    main([verb[0], str(tmp_path / "axolotl.yaml"), *verb[1:]])
    assert "adaptor is not known; did you mean adapter? It was ignored." in capsys.readouterr().err
