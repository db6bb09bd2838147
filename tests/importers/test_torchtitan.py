"""torchtitan's files and lines: what is read, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.importers import native
from trainledger.base.problems import InputError
from trainledger.facts.import_torchtitan_words import PRESETS
from trainledger.importers.outside import read_any
from trainledger.plan.stages import chunks_of

FOLDER = native.FOLDER / "torchtitan"


def test_what_the_shell_knows_is_taken_from_outside(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("NGPU=$GPUS MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.local_batch_size=$MB\n")
    plan = read_any([str(script)], env={"GPUS": "16", "MB": "4"}).plan
    assert (plan.parallel.world, plan.batch.micro_batch) == (16, 4)


def test_a_files_world_follows_what_is_set(tmp_path: Path) -> None:
    plan = read_any([str(FOLDER / "deepseek_16b.toml")], ["parallel.world=64"]).plan
    assert (plan.parallel.world, plan.parallel.dp, plan.parallel.shard) == (64, 64, 64)


@pytest.mark.parametrize(("name", "loss"), [("llama3_8b_2025.toml", "full-fp32"), ("module_8b.sh", "chunked")])
def test_its_loss_by_era(name: str, loss: str) -> None:
    assert read_any([str(FOLDER / name)]).plan.stack.loss == loss


@pytest.mark.parametrize(("release", "kind"), [("0.0.1", "foreach"), ("0.1.0", "fused"), ("9dec370", "foreach")])
def test_its_optimizer_by_release(release: str, kind: str) -> None:
    plan = read_any([str(FOLDER / "llama3_8b_2024.toml")], versions={"torchtitan": release}).plan
    assert plan.optimizer.implementation == kind


@pytest.mark.parametrize("preset", PRESETS)
def test_its_own_configurations_are_plans(preset: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"NGPU=64 MODULE=x CONFIG={preset} ./run_train.sh\n")
    draft = read_any([str(script)])
    assert draft.plan.parallel.world == 64
    assert draft.unknown == ()


@pytest.mark.parametrize(
    ("switch", "limit"), [("enable", 3), ("enable_checkpoint", 3), ("create_seed_checkpoint", None)]
)
def test_what_it_saves(switch: str, limit: int | None, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    text = f'[model]\nflavor = "8B"\n[training]\nseq_len = 512\n[checkpoint]\n{switch} = true\nkeep_latest_k = 3\n'
    config.write_text(text + 'async_mode = "async_with_pinned_mem"\n')
    save = read_any([str(config)]).plan.save
    assert (save.limit if save else None) == limit
    assert save is None or save.asynchronous


@pytest.mark.parametrize(
    ("release", "said", "limit"), [("0.1.0", "", 10), ("0.0.2", "", None), ("0.2.2", "keep_latest_k = 0\n", None)]
)
def test_ten_checkpoints_are_kept_unless_a_number_is_said(
    release: str, said: str, limit: int | None, tmp_path: Path
) -> None:
    config = tmp_path / "c.toml"
    text = '[model]\nflavor = "8B"\n[training]\nseq_len = 512\n[checkpoint]\nenable = true\nasync_mode = "async"\n'
    config.write_text(text + said)
    save = read_any([str(config)], versions={"torchtitan": release}).plan.save
    assert save is not None
    assert save.limit == limit


def test_an_unknown_key_is_listed_with_the_nearest(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[model]\nflavor = "8B"\n[training]\nlocal_batchsize = 4\n[compile]\nenabled = true\n')
    unknown = read_any([str(config)]).unknown
    assert [(one.path, one.near) for one in unknown] == [
        ("training.local_batchsize", "training.local_batch_size"),
        ("compile.enabled", "compile.enable"),
    ]


def test_what_is_not_counted_of_a_part_that_is_off_is_not_listed(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    text = '[model]\nflavor = "8B"\n[float8]\nfilter_fqns = ["output"]\n[validation]\nlocal_batch_size = 8\n'
    config.write_text(text)
    assert read_any([str(config)]).uncounted == ()
    config.write_text(text + "enable = true\n[training]\nenable_float8_linear = true\n")
    listed = [one.path for one in read_any([str(config)]).uncounted]
    assert listed == ["float8.filter_fqns", "validation.local_batch_size"]


@pytest.mark.parametrize(("release", "options"), [("0.2.0", {"bucket_cap_mb": 100}), ("0.2.3", {})])
def test_its_ddp_has_buckets_of_its_own(release: str, options: dict[str, int]) -> None:
    plan = read_any([str(FOLDER / "ddp.toml")], versions={"torchtitan": release}).plan
    assert plan.parallel.strategy == "ddp"
    assert plan.parallel.options == options


@pytest.mark.parametrize(("family", "layers"), [("llama3", 6), ("deepseek_v3", 6), ("qwen3", 8)])
def test_each_model_has_a_debug_configuration(family: str, layers: int, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"CONFIG_FILE=./torchtitan/models/{family}/train_configs/debug_model.toml ./run_train.sh\n")
    model = read_any([str(script)]).plan.keys()
    assert model["num_hidden_layers"] == layers
    assert model["name"] == f"{family}-debugmodel"


@pytest.mark.parametrize(
    ("parts", "layers", "said"),
    [
        ('["loss"]', False, {"compile": {"components": ["loss"]}}),
        ('["model"]', True, {"compile": {"components": ["model"]}}),
        ('["model", "loss"]', True, {}),
        ('"loss"', False, {"compile": {"components": ["loss"]}}),
    ],
)
def test_what_is_compiled(parts: str, layers: bool, said: dict[str, object], tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'[model]\nflavor = "8B"\n[compile]\nenable = true\ncomponents = {parts}\n')
    stack = read_any([str(config)]).plan.stack
    assert (stack.compile, stack.options) == (layers, said)


def test_what_is_compiled_is_said_as_a_flag_too(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    flags = "--compile.enable --compile.components '[\"loss\"]'"
    script.write_text(f"MODULE=llama3 CONFIG=llama3_8b ./run_train.sh {flags}\n")
    assert read_any([str(script)]).plan.stack.options == {"compile": {"components": ["loss"]}}


@pytest.mark.parametrize("family", ["llama4", "flux"])
def test_a_debug_configuration_of_a_family_that_is_not_known_is_no_other_familys(family: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"CONFIG_FILE=./torchtitan/models/{family}/train_configs/debug_model.toml ./run_train.sh\n")
    with pytest.raises(InputError, match="debug_model"):
        read_any([str(script)])


@pytest.mark.parametrize("path", ["train_configs", "./train_configs", "torchtitan/models/llama/train_configs"])
def test_the_first_models_debug_configuration_has_had_several_places(path: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"CONFIG_FILE={path}/debug_model.toml ./run_train.sh\n")
    assert read_any([str(script)]).plan.keys()["hidden_size"] == 256


@pytest.mark.parametrize(("line", "ranks"), [("CONFIG", 2), ("CONFIG_FILE", 1)])
def test_a_function_of_the_registry_may_differ_from_the_file_of_its_name(line: str, ranks: int, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"NGPU=64 {line}=deepseek_v3_671b ./run_train.sh\n")
    assert read_any([str(script)]).plan.parallel.ep == ranks


PIPELINE = """[model]
flavor = "8B"
[training]
local_batch_size = 16
[parallelism]
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "{schedule}"
{more}
"""


@pytest.mark.parametrize(
    ("schedule", "more", "chunks"),
    [
        ("1F1B", "", 1),
        ("Interleaved1F1B", "", 2),
        ("ZBVZeroBubble", "", 2),
        ("Interleaved1F1B", "pipeline_parallel_layers_per_stage = 3", 3),
        ("Interleaved1F1B", "pipeline_parallel_layers_per_stage = 4\npipeline_parallel_first_stage_less_layers = 0\n"
         "pipeline_parallel_last_stage_less_layers = 0", 2),
        ("1F1B", 'pipeline_parallel_split_points = "layers.9, layers.18,layers.27"', 1),
        ("Interleaved1F1B", 'pipeline_parallel_split_points = ["layers.4", "layers.8", "layers.12", "layers.16", '
         '"layers.20", "layers.24", "layers.28"]', 2),
    ],
)  # fmt: skip
def test_the_stages_of_a_rank(schedule: str, more: str, chunks: int, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(PIPELINE.format(schedule=schedule, more=more))
    assert chunks_of(read_any([str(config)]).plan) == chunks


def test_stages_that_no_multiple_of_the_ranks_makes_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(PIPELINE.format(schedule="Interleaved1F1B", more="pipeline_parallel_layers_per_stage = 5"))
    with pytest.raises(InputError, match="7 stages over 4 pipeline ranks; a multiple of the ranks is needed"):
        read_any([str(config)])


def test_stages_that_are_named_are_the_plans(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    points = 'pipeline_parallel_split_points = "layers.9, layers.18,layers.27"'
    config.write_text(PIPELINE.format(schedule="1F1B", more=points))
    options = read_any([str(config)]).plan.parallel.options
    assert options["pipeline_parallel_split_points"] == ["layers.9", "layers.18", "layers.27"]


@pytest.mark.parametrize(
    "wrong", ["training.seq_len=-4096", "training.local_batch_size=0", "parallelism.tensor_parallel_degree=-2"]
)
def test_sizes_below_one_are_refused(wrong: str, tmp_path: Path) -> None:
    """They were read as left out. A degree of -1 for the shards is what is left of the ranks."""
    name, _, value = wrong.partition("=")
    section, key = name.split(".")
    config = tmp_path / "c.toml"
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\n{training}\n[parallelism]\n{parallelism}\n'
    said = {"training": "", "parallelism": "data_parallel_shard_degree = -1"}
    config.write_text(text.format(**{**said, section: f"{key} = {value}"}))
    with pytest.raises(InputError, match="at least 1 is needed") as caught:
        read_any([str(config)])
    assert [one.path for one in caught.value.problems] == [name]
    config.write_text(text.format(**said))
    assert read_any([str(config)]).plan.batch.sequence > 0
