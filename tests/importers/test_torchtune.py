"""torchtune's files and lines: what is read, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers import native
from trainledger.importers.outside import read_any
from trainledger.plan.schema import as_mapping

FOLDER = native.FOLDER / "torchtune"


def test_a_file_and_the_line_that_changes_it_are_one_run() -> None:
    files = [str(FOLDER / "8b_lora.yaml"), str(FOLDER / "run_lora.sh")]
    alone = as_mapping(read_any([files[1]]).plan)
    assert as_mapping(read_any(files).plan) == alone == as_mapping(read_any(files[::-1]).plan)
    assert len(read_any(files).uncounted) == len(read_any(files[1:]).uncounted)


def test_a_preset_takes_the_file_that_was_given_before(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("tune run --nproc_per_node 4 lora_finetune_distributed --config llama3_1/8B_lora batch_size=3\n")
    plan = read_any([str(FOLDER / "8b_lora.yaml"), str(script)]).plan
    assert (plan.batch.micro_batch, plan.parallel.world, plan.parallel.strategy) == (3, 4, "fsdp2")


@pytest.mark.parametrize(("release", "strategy"), [("0.2.1", "fsdp1"), ("0.3.0", "fsdp2"), ("0.6.1", "fsdp2")])
def test_its_sharding_by_release(release: str, strategy: str) -> None:
    plan = read_any([str(FOLDER / "run_lora.sh")], versions={"torchtune": release}).plan
    assert plan.parallel.strategy == strategy
    assert plan.stack.versions["torchtune"] == release


def test_an_unknown_key_is_listed_with_the_nearest(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    text = (FOLDER / "8b_lora.yaml").read_text(encoding="utf-8")
    config.write_text(text + "bach_size: 4\nzz9: {x: 1}\n")
    unknown = read_any([str(config)]).unknown
    assert [(one.path, one.near) for one in unknown] == [("bach_size", "batch_size"), ("zz9.x", "")]
    config.write_text(text.replace("lora_rank", "lora_rnk"))
    (one,) = read_any([str(config)]).unknown
    assert (one.path, one.near) == ("model.lora_rnk", "model.lora_rank")


def test_a_distributed_file_alone_says_how_many_ranks_were_taken() -> None:
    draft = read_any([str(FOLDER / "70b_full_tp.yaml")])
    (world,) = (one for one in draft.defaulted if one.path == "parallel.world")
    assert world.value == 8
    assert "--set parallel.world" in world.why
    assert read_any([str(FOLDER / "70b_full_tp.yaml")], ["parallel.world=16"]).plan.parallel.dp == 2


def test_what_it_saves(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    text = (FOLDER / "8b_lora.yaml").read_text(encoding="utf-8").replace("save_adapter_weights_only", "# ")
    config.write_text(text + "save_adapter_weights_only: true\nenable_async_checkpointing: true\n")
    save = read_any([str(config)]).plan.save
    assert save is not None
    assert (save.format, save.asynchronous) == ("adapter", False)  # recipes of LoRA do not write shards
    config.write_text(text + "save_adapter_weights_only: false\n")
    assert read_any([str(config)]).plan.save is None
