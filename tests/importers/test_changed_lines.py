"""Lines of a user's own files: written as said and read again, they make the plan that advice means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainledger.answer.changed import LEFT_OUT, Change, planned, value_of, with_changes
from trainledger.answer.moves import taken
from trainledger.base.problems import InputError
from trainledger.facts.format_words import ANY, WORDS
from trainledger.importers.changed_lines import FileLine, changed_lines
from trainledger.importers.outside import read_any
from trainledger.plan.problems import known_paths
from trainledger.plan.schema import as_mapping

TRAINER = {
    "model_name_or_path": "meta-llama/Llama-3.2-1B", "per_device_train_batch_size": 8, "max_length": 1024, "bf16": True,
    "gradient_accumulation_steps": 2,
}  # fmt: skip
AXOLOTL = {
    "base_model": "meta-llama/Llama-3.2-1B", "sequence_len": 1024, "micro_batch_size": 8, "bf16": True,
    "gradient_accumulation_steps": 2, "optimizer": "adamw_torch", "datasets": [{"path": "a", "type": "alpaca"}],
}  # fmt: skip
FACTORY = {
    "model_name_or_path": "meta-llama/Llama-3.2-1B", "stage": "sft", "finetuning_type": "full", "cutoff_len": 1024,
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "bf16": True,
}  # fmt: skip
TUNE = {
    "model": {"_component_": "torchtune.models.llama3_2.llama3_2_1b"}, "batch_size": 8, "dtype": "bf16",
    "gradient_accumulation_steps": 2, "enable_activation_checkpointing": False,
    "tokenizer": {"_component_": "torchtune.models.llama3.llama3_tokenizer", "max_seq_len": 1024},
    "optimizer": {"_component_": "torch.optim.AdamW", "fused": False},
    "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
}  # fmt: skip
HALVED = (Change("batch.micro_batch", 4), Change("batch.accumulation", 4))
PLAIN = Change("stack.recompute", {"kind": "full", "reentrant": False})
FUSED = (Change("stack.loss", "fused-linear"), Change("stack.kernels", ["liger"]))
CASES: list[tuple[str, dict[str, Any], tuple[Change, ...]]] = [
    ("TrainingArguments", TRAINER, HALVED),
    ("TrainingArguments", TRAINER, (PLAIN,)),
    ("TrainingArguments", TRAINER, FUSED),
    ("TrainingArguments", TRAINER, (Change("optimizer.name", "paged-adamw-8bit"),)),
    ("TrainingArguments", TRAINER, (Change("batch.sequence", 512),)),
    ("Axolotl", AXOLOTL, HALVED),
    ("Axolotl", AXOLOTL, (PLAIN,)),
    ("Axolotl", AXOLOTL, FUSED),
    ("Axolotl", AXOLOTL, (Change("optimizer.name", "adamw-8bit"),)),
    ("Axolotl", AXOLOTL, (Change("stack.attention", "flash"),)),
    ("LLaMA-Factory", FACTORY, HALVED),
    ("LLaMA-Factory", FACTORY, FUSED),
    ("LLaMA-Factory", FACTORY, (Change("stack.attention", "flash"),)),
    ("LLaMA-Factory", FACTORY, (Change("batch.sequence", 512),)),
    ("torchtune", TUNE, HALVED),
    ("torchtune", TUNE, (Change("stack.recompute", {"kind": "full"}),)),
    ("torchtune", TUNE, (Change("optimizer.implementation", "fused"),)),
]


def written(data: dict[str, Any], lines: tuple[FileLine, ...]) -> dict[str, Any]:
    """A YAML file's keys with these lines changed or added."""
    made = json.loads(json.dumps(data))
    for line in lines:
        gone = line.text.startswith("take ")
        key, _, value = (line.text.split()[1], "", "null") if gone else line.text.partition(": ")
        under = line.place.partition(", under ")[2]
        part = made
        for name in under.split(".") if under else ():
            part = part.setdefault(name, {})
        number = line.place.rpartition(":")[2]
        if number.isdigit():  # the line of a key that stands there
            above = yaml.safe_dump(data, sort_keys=False).splitlines()[: int(number)]
            if above[-1].startswith(" "):
                outer = next(one for one in reversed(above) if not one.startswith(" "))
                part = made[outer.rstrip(":")]
        part[key] = yaml.safe_load(value)
        if gone:
            del part[key]
    return made


@pytest.mark.parametrize(("name", "data", "changes"), CASES)
def test_lines_that_are_written_make_the_changed_plan(
    tmp_path: Path, name: str, data: dict[str, Any], changes: tuple[Change, ...]
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    draft = read_any([str(path)])
    assert draft.formats[0][1].startswith(name)
    lines = changed_lines(changes, draft)
    assert lines
    assert not any(line.place == "--set" for line in lines)
    path.write_text(yaml.safe_dump(written(data, lines), sort_keys=False), encoding="utf-8")
    again, meant = as_mapping(read_any([str(path)]).plan), as_mapping(planned(draft.data, changes))
    for change in changes:
        assert value_of(again, change.path) == value_of(meant, change.path), (change, lines)


SPREAD = ["parallel.world=4"]
ELSEWHERE = ("--set", "launch", "environment")


def _named(value: object) -> object:
    """A list of modules without the name of the model around them, which says no more."""
    return [str(one).removeprefix("model.") for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "data", [TRAINER, AXOLOTL, FACTORY, TUNE], ids=["TrainingArguments", "Axolotl", "Factory", "tune"]
)
@pytest.mark.parametrize("sets", [[], SPREAD], ids=["one device", "four"])
def test_every_change_of_advice_reads_back_from_its_lines(
    tmp_path: Path, data: dict[str, Any], sets: list[str]
) -> None:
    """Of every change that the file itself can say, whatever its exporter has for it."""
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    if data is TUNE and sets:
        return  # a recipe of one device
    draft = read_any([str(path)], sets)
    said = 0
    for one in taken(draft.data, draft.plan):
        try:
            meant = as_mapping(planned(draft.data, one.changes))
        except InputError:
            continue
        lines = changed_lines(one.changes, draft)
        if any(line.place in ELSEWHERE or "so that" in line.text for line in lines):
            continue
        path.write_text(yaml.safe_dump(written(data, lines), sort_keys=False), encoding="utf-8")
        again = as_mapping(read_any([str(path)], sets).plan)
        for change in one.changes:
            if change.value is not LEFT_OUT and change.path != "stack.framework":
                found, wanted = (_named(value_of(data, change.path)) for data in (again, meant))
                assert found == wanted, (one.name, change, lines)
        said += 1
    assert said > 8


def test_the_places_are_the_user_s_own(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(TRAINER, sort_keys=False), encoding="utf-8")
    lines = changed_lines((*HALVED, PLAIN), read_any([str(path)]))
    assert lines[0] == FileLine(f"{path}:2", "per_device_train_batch_size: 4", "8", "batch.micro_batch", True)
    assert lines[2] == FileLine(str(path), "gradient_checkpointing: true", "", "stack.recompute", False)


def test_scripts_get_flags_and_json_gets_json(tmp_path: Path) -> None:
    zero = tmp_path / "ds.json"
    zero.write_text(json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}), encoding="utf-8")
    script = tmp_path / "run.sh"
    script.write_text(
        "torchrun --nproc_per_node 4 train.py --model_name_or_path meta-llama/Llama-3.2-1B --max_length 512 "
        "--bf16 true --per_device_train_batch_size 4 --deepspeed ds.json\n",
        encoding="utf-8",
    )
    draft = read_any([str(script)])
    changes = (
        Change("batch.micro_batch", 2),
        PLAIN,
        Change("parallel.strategy", "zero3"),
        Change("parallel.options.reduce_bucket_size", 50_000_000),
        Change("stack.allocator.expandable_segments", True),
    )
    text = [line.text for line in changed_lines(changes, draft)]
    assert text == [
        "--per_device_train_batch_size 2",
        "--gradient_checkpointing true",
        "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'",
        '"stage": 3',
        '"reduce_bucket_size": 50000000',
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ]


def test_of_two_files_the_one_whose_key_stands_is_changed(tmp_path: Path) -> None:
    zero = {"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": True}}
    (tmp_path / "ds.json").write_text(json.dumps(zero, indent=1), encoding="utf-8")
    trainer = {name: value for name, value in TRAINER.items() if name != "per_device_train_batch_size"}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**trainer, "deepspeed": "ds.json"}), encoding="utf-8")
    draft = read_any([str(tmp_path / "run.yaml")], ["parallel.world=4"])
    first, second = changed_lines(HALVED, draft)
    assert first.text == '"train_micro_batch_size_per_gpu": 4'
    assert first.place.endswith("ds.json:5")
    assert second.text == "gradient_accumulation_steps: 4"
    assert "run.yaml" in second.place


TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
global_batch_size = 64
seq_len = 8192
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 1
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
"""
MEGATRON = """
torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 512 --num-attention-heads 8 \\
  --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 2 --global-batch-size 64 --bf16 \\
  --padded-vocab-size 32000 --use-distributed-optimizer
"""


def test_a_global_batch_that_the_file_states_stays(tmp_path: Path) -> None:
    path = tmp_path / "titan.toml"
    path.write_text(TITAN, encoding="utf-8")
    draft = read_any([str(path)], ["parallel.world=8"])
    halved = (Change("batch.micro_batch", 1), Change("batch.accumulation", 8))
    assert [line.text for line in changed_lines(halved, draft)] == ["local_batch_size = 1"]
    spread = (Change("parallel.tp", 2), Change("parallel.dp", 4), Change("batch.accumulation", 8))
    assert [line.text for line in changed_lines(spread, draft)] == [
        "tensor_parallel_degree = 2",
        "data_parallel_shard_degree = 4",
        "enable_sequence_parallel = false",  # the changed plan has none, and torchtitan's default is to have it
        "disable_loss_parallel = true",
    ]
    path.write_text(TITAN.replace("local_batch_size = 2", "local_batch_size = 1"), encoding="utf-8")
    again, meant = read_any([str(path)], ["parallel.world=8"]).plan.batch, planned(draft.data, halved).batch
    assert (again.micro_batch, again.accumulation) == (meant.micro_batch, meant.accumulation)


def test_megatron_s_flags(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(MEGATRON, encoding="utf-8")
    draft = read_any([str(path)])
    uniform = Change("stack.recompute", {"kind": "full", "method": "uniform", "num_layers": 1})
    spread = (Change("parallel.tp", 2), Change("parallel.dp", 4), Change("batch.accumulation", 8))
    text = [line.text for line in changed_lines((Change("batch.micro_batch", 1), uniform, *spread), draft)]
    assert text == [
        "--micro-batch-size 1",
        "--recompute-granularity full",
        "--recompute-method uniform",
        "--recompute-num-layers 1",
        "--tensor-model-parallel-size 2",
    ]
    more = " ".join(text[1:])
    path.write_text(
        MEGATRON.replace("--micro-batch-size 2", "--micro-batch-size 1").rstrip() + f" {more}\n", encoding="utf-8"
    )
    again = read_any([str(path)]).plan
    assert (again.batch.micro_batch, again.parallel.tp, again.parallel.dp) == (1, 2, 4)
    assert again.stack.recompute.kind == "full"
    assert again.batch.accumulation * 4 == 64  # the global batch is the file's


def test_a_plan_keeps_its_own_keys(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("model: llama-3.2-1b\nbatch:\n  micro_batch: 2\n  sequence: 512\n", encoding="utf-8")
    draft = read_any([str(path)], ["batch.sequence=256"])
    lines = changed_lines(
        (
            Change("batch.micro_batch", 1),
            Change("batch.accumulation", 2),
            Change("batch.sequence", 128),
            Change("optimizer.implementation", LEFT_OUT),
        ),
        draft,
    )
    assert lines == (
        FileLine(f"{path}:3", "micro_batch: 1", "2", "batch.micro_batch", True),
        FileLine(f"{path}, under batch", "accumulation: 2", "", "batch.accumulation"),
        FileLine("--set", "batch.sequence=128", "256", "batch.sequence", True),
    )


def test_a_key_without_a_word_is_said_in_the_plan_s(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(TRAINER), encoding="utf-8")
    (line,) = changed_lines((Change("optimizer.in_backward", True),), read_any([str(path)]))
    assert (line.place, line.text) == ("--set", "optimizer.in_backward=true")


@pytest.mark.parametrize("word", WORDS, ids=[f"{word.format} {word.path}" for word in WORDS])
def test_words_name_keys_of_the_plan(word) -> None:
    assert word.path in known_paths()
    assert word.value is ANY or word.value is not None
    assert with_changes({}, [Change(word.path, 1)])
