"""Several files to one draft: their order, what is given twice, what is named and read too, and what is a plan."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from trainledger.base.problems import InputError
from trainledger.importers.outside import merged, read_any
from trainledger.importers.piece import AUTO, Piece, Rank
from trainledger.importers.safetensors import stored_dtype

PLAN = "model: qwen2.5-0.5b\nbatch: {micro_batch: 1, sequence: 512}\n"
ARGS = "model_name_or_path: qwen2.5-0.5b\nmax_length: 512\nper_device_train_batch_size: 2\nbf16: true\n"


def problems(sources: list[Path], *sets: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_any([str(one) for one in sources], list(sets))
    return [str(one) for one in caught.value.problems]


def piece(rank: Rank, **given: object) -> Piece:
    made = Piece("test", f"{rank.name}.yaml", rank=rank)
    for path, value in given.items():
        made.give(path.replace("__", "."), value, f"{rank.name}.yaml {path}")
    return made


def test_a_higher_rank_has_the_word() -> None:
    low, high = piece(Rank.FILE, batch__micro_batch=1), piece(Rank.COMMAND, batch__micro_batch=2)
    for pieces in ([low, high], [high, low]):
        document = merged(pieces)
        assert document.data == {"batch": {"micro_batch": 2}}
        assert document.where(("batch", "micro_batch")) == "COMMAND.yaml batch__micro_batch"


def test_equal_ranks_that_differ_are_named_both() -> None:
    with pytest.raises(InputError) as caught:
        merged([piece(Rank.FILE, task="sft"), piece(Rank.FILE, task="dpo")])
    (problem,) = caught.value.problems
    assert (problem.path, problem.found) == ("task", "'sft' at FILE.yaml task and 'dpo' at FILE.yaml task")
    assert merged([piece(Rank.FILE, task="sft"), piece(Rank.FILE, task="sft")]).data == {"task": "sft"}


def test_auto_gives_way_to_a_value_and_a_value_to_no_default() -> None:
    one, two = piece(Rank.COMMAND, task=AUTO), piece(Rank.FILE, task="sft")
    assert merged([one, two]).data == merged([two, one]).data == {"task": "sft"}
    assert merged([one]).data == {}


def test_a_plan_is_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    assert read_any([str(path)], ["batch.micro_batch=3"]).plan.batch.micro_batch == 3
    assert read_any(["-"], stdin=io.BytesIO(PLAN.encode())).plan.batch.sequence == 512
    path.write_text("model: qwen2.5-0.5b\n")
    assert "batch: missing" in problems([path])[0]


def test_a_script_may_come_from_standard_input() -> None:
    text = b"python t.py --model_name_or_path qwen2.5-0.5b --max_length 256 --bf16 --per_device_train_batch_size 4"
    draft = read_any(["-"], stdin=io.BytesIO(text))
    assert (draft.plan.batch.micro_batch, draft.formats) == (4, (("<stdin>", "python command"),))


def test_used_keys_have_their_place_and_defaults_their_reason(tmp_path: Path) -> None:
    path = tmp_path / "args.yaml"
    path.write_text(ARGS)
    draft = read_any([str(path)])
    used = {one.path: one.where for one in draft.used}
    assert used["batch.micro_batch"] == f"{path}:3 per_device_train_batch_size"
    assert used["precision.compute"] == f"{path}:4 bf16"
    why = {one.path: one.why for one in draft.defaulted}
    assert why["batch.accumulation"] == "gradient_accumulation_steps 1"
    assert not set(used) & set(why)


def test_releases_beside_the_files_are_the_plans(tmp_path: Path) -> None:
    path = tmp_path / "args.yaml"
    path.write_text(ARGS)
    draft = read_any([str(path)], versions={"transformers": "4.48.0"})
    assert draft.plan.stack.versions["transformers"] == "4.48.0"
    assert draft.plan.precision.weights == "fp32"


def test_a_variable_of_a_script_may_be_given(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"torchrun --nproc_per_node $GPUS t.py --config {tmp_path}/args.yaml\n")
    (tmp_path / "args.yaml").write_text(ARGS)
    assert "$GPUS is known on the machine only" in problems([path])[0]
    assert read_any([str(path)], env={"GPUS": "4"}).plan.parallel.world == 4
    assert read_any([str(path)], ["parallel.world=2"]).plan.parallel.world == 2


def test_a_file_that_moved_may_be_given_itself(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 2 t.py --deepspeed cfg/ds.json --bf16\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"}}')
    (tmp_path / "args.yaml").write_text(ARGS)
    sources = [tmp_path / "run.sh", tmp_path / "args.yaml"]
    assert "cfg/ds.json" in problems(sources)[0]
    draft = read_any([str(one) for one in (*sources, tmp_path / "ds.json")])
    assert draft.plan.parallel.strategy == "zero1"


def test_a_local_model_is_read_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "args.yaml").write_text(ARGS.replace("qwen2.5-0.5b", "./tiny"))
    (tmp_path / "tiny").mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
              "intermediate_size": 96, "vocab_size": 100, "dtype": "float32"}  # fmt: skip
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    weights = {"model.embed_tokens.weight": "a", "lm_head.weight": "a"}
    (tmp_path / "tiny" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    draft = read_any([str(tmp_path / "args.yaml")])
    assert draft.plan.keys()["hidden_size"] == 64
    assert draft.plan.keys()["tie_word_embeddings"] is False
    assert draft.plan.precision.weights == "fp32"
    assert draft.formats[-1] == (str(tmp_path / "tiny"), "model folder")


def safetensors(path: Path, header: object) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 8)


def test_the_stored_dtype_is_that_of_most_elements(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors(
        path, {"a": {"dtype": "F32", "shape": [4]}, "b": {"dtype": "BF16", "shape": [4, 4]}, "__metadata__": {}}
    )
    assert stored_dtype(str(tmp_path)) == "bf16"
    safetensors(path, {"a": {"dtype": "U8", "shape": [4]}})
    assert stored_dtype(str(tmp_path)) == ""
    path.write_bytes(b"\xff" * 16)
    assert stored_dtype(str(tmp_path)) == ""
    assert stored_dtype(str(tmp_path / "nowhere")) == ""


@pytest.mark.parametrize(("said", "expected"), [(None, "fp32"), ("bfloat16", "bf16")])
def test_the_configurations_dtype_counts_and_else_that_of_the_weights(
    tmp_path: Path, said: str | None, expected: str
) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
              "intermediate_size": 96, "vocab_size": 100}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps({**config, "dtype": said} if said else config))
    safetensors(tmp_path / "model.safetensors", {"a": {"dtype": "F32", "shape": [4]}})
    sets = ["batch.micro_batch=1", "batch.sequence=64"]
    assert read_any([str(tmp_path)], sets).plan.precision.weights == expected


def test_a_misspelt_key_is_named_beside_what_it_leaves_missing(tmp_path: Path) -> None:
    path = tmp_path / "args.yaml"
    path.write_text(ARGS.replace("max_length", "sequence_length"))
    first, second = problems([path])
    assert "batch.sequence: missing" in first
    assert "Did you mean seq_length?" in second


@pytest.mark.parametrize(
    "text",
    [
        "CUDA_VISIBLE_DEVICES=0 python t.py {}",
        "export A=1\n$ torchrun --nproc_per_node 1 t.py {}",
        "# note\nset -e\n\n  /usr/bin/python3 t.py {}",
    ],
)
def test_a_command_needs_no_ending_to_be_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "command.txt"
    path.write_text(text.format("--model_name_or_path qwen2.5-0.5b --max_length 64 --per_device_train_batch_size 1\n"))
    assert read_any([str(path)]).plan.batch.sequence == 64


def test_a_program_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit")
    assert "programs are not run" in problems([tmp_path / "train.py"])[0]


def test_variables_that_arguments_set_are_the_runs(tmp_path: Path) -> None:
    path = tmp_path / "args.yaml"
    path.write_text(ARGS + "env:\n  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True\n")
    assert read_any([str(path)]).plan.stack.allocator == {"expandable_segments": True}


def test_no_file_is_a_problem() -> None:
    with pytest.raises(InputError, match="no file"):
        read_any([])


def test_a_tuned_models_files_are_not_those_of_its_base(tmp_path: Path) -> None:
    """google/gemma-2-2b is written in fp32, what was tuned from it in bf16."""
    file = tmp_path / "args.yaml"
    for model, weights in (("google/gemma-2-2b", "fp32"), ("google/gemma-2-2b-it", "bf16")):
        file.write_text(f"model_name_or_path: {model}\nper_device_train_batch_size: 1\nmax_length: 64\n")
        assert read_any([str(file)], versions={"transformers": "5.24.0"}).plan.precision.weights == weights


def test_a_problem_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text("swift sft --model gpt2 --max_length 8 --per_device_train_batch_size two\n")
    with pytest.raises(InputError) as caught:
        read_any([str(tmp_path / "s.sh")])
    told = [one for one in caught.value.problems if one.path == "per_device_train_batch_size"]
    assert len(told) == 1
