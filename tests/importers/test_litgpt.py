"""LitGPT's files and lines: what is read, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers import native
from trainledger.base.problems import InputError
from trainledger.importers.outside import read_any

FOLDER = native.FOLDER / "litgpt"


@pytest.mark.parametrize(("release", "strategy"), [("0.5.10", "fsdp1"), ("0.5.11", "fsdp2"), ("8641822", "fsdp1")])
def test_its_sharding_by_release(release: str, strategy: str) -> None:
    plan = read_any([str(FOLDER / "with_config.sh")], versions={"litgpt": release}).plan
    assert plan.parallel.strategy == strategy


def test_a_length_that_no_file_says_is_asked_for(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("checkpoint_dir: microsoft/phi-2\ntrain: {micro_batch_size: 1, global_batch_size: 8}\n")
    with pytest.raises(InputError, match=r"batch\.sequence"):
        read_any([str(config)])
    assert read_any([str(config)], ["batch.sequence=256"]).plan.batch.sequence == 256


def test_an_unknown_key_is_listed_with_the_nearest(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("checkpoint_dir: microsoft/phi-2\ntrain: {micro_batchsize: 1, max_seq_length: 8}\n")
    (one,) = read_any([str(config)]).unknown
    assert (one.path, one.near) == ("train.micro_batchsize", "train.micro_batch_size")
    assert one.where == f"{config}:2 train.micro_batchsize"
