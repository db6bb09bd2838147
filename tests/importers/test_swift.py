"""ms-swift's command lines and files: what each says, what is refused and how, and that none gives a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.importers.fuzz import mappings, read, scripts
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.facts.import_swift import SWIFT_KEYS
from trainledger.importers import swift
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.inputs import read_input
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of

FILES = Path(__file__).parent / "files"
RUN = "swift sft --model meta-llama/Llama-3.2-1B --max_length 512 --torch_dtype bfloat16"
RECORDS = Path(__file__).parent.parent / "data" / "records_front_ends.jsonl"


def draft(tmp_path: Path, text: str, name: str = "run.sh", **versions: str) -> Draft:
    path = tmp_path / name
    path.write_text(text)
    return read_any([str(path)], versions=versions)


def refused(tmp_path: Path, text: str, name: str = "run.sh") -> str:
    with pytest.raises(InputError) as caught:
        draft(tmp_path, text, name)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    "text, words",
    [
        ("swift sft --max_length 512\n", "model: missing; the model that is trained is needed. Give --model."),
        (f"{RUN} --train_type ful\n", "found 'ful'; one of lora, full"),
        (f"{RUN} --quant_bits 3\n", "quant_bits: found 3; 4 or 8 bits of bitsandbytes"),
        (f"{RUN} --quant_bits 4 --quant_method hqq\n", "4 or 8 bits of bitsandbytes (--quant_method bnb) can be read"),
        (f"{RUN} --attn_impl flash\n", "attn_impl: found 'flash'; one of flash_attn"),
        (RUN.replace("bfloat16", "bfloat"), "torch_dtype: found 'bfloat'; one of bfloat16"),
        (f"{RUN} --deepspeed zero4\n", "run.sh:1 deepspeed: input: zero4: no such file"),
        (f"{RUN} --optimizer muonclip\n", "optimizer: found 'muonclip'; galore, muon, lorap or default can be read"),
        (RUN.replace("sft", "rlhf --rlhf_type tpo"), "rlhf_type: found 'tpo'; one of dpo, orpo"),
        (f"{RUN} --lora_rank $RANK\n", "found $RANK; a value that nothing here sets is not known"),
        (f"{RUN} --gradient_accumulation_steps $(expr 16 / $N)\n", "found $(expr 16 / $N)"),
        (RUN.replace(" --max_length 512", ""), "batch.sequence"),
        ("swift sft run.yaml\n", "run.sh:1: input: run.yaml: no such file"),
    ],
)
def test_a_broken_command_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text)


@pytest.mark.parametrize(
    "more, rows",
    [
        ("--val_dataset a.jsonl", 1),
        ("--cached_val_dataset a", 1),
        ("--split_dataset_ratio 0.01 --per_device_eval_batch_size 4", 4),
        ("--split_dataset_ratio 0.01 --streaming true", None),
        ("--split_dataset_ratio 0", None),
        ("--val_dataset a.jsonl --eval_strategy no", None),
        ("--val_dataset a.jsonl --save_strategy no", None),
        ("--val_dataset a.jsonl --save_strategy no --eval_strategy epoch", 1),
        ("--eval_strategy steps", None),  # without a set there is none
    ],
)
def test_an_evaluation_where_there_is_a_set_for_it(tmp_path: Path, more: str, rows: int | None) -> None:
    found = draft(tmp_path, f"{RUN} {more}\n").plan.evaluation
    assert (found and found.micro_batch) == rows


@pytest.mark.parametrize(
    "processes, micro, steps", [("", "", 16), ("NPROC_PER_NODE=4 ", "", 4), ("NPROC_PER_NODE=4 NNODES=2 ", "3", 1)]
)
def test_the_accumulation_makes_sixteen_sequences(tmp_path: Path, processes: str, micro: str, steps: int) -> None:
    more = f" --per_device_train_batch_size {micro}" if micro else ""
    found = draft(tmp_path, f"{processes}{RUN}{more}\n")
    assert found.plan.batch.accumulation == steps
    assert "batch.accumulation" in {one.path for one in found.defaulted}


@pytest.mark.parametrize(
    "processes, more, reentrant",
    [
        ("", "", True),
        ("NPROC_PER_NODE=2 ", "", False),
        ("NPROC_PER_NODE=2 ", " --deepspeed zero2", True),
        ("", """ --gradient_checkpointing_kwargs '{"use_reentrant": false}'""", False),
    ],
)
def test_reentrance_is_decided_by_its_own_function(tmp_path: Path, processes: str, more: str, reentrant: bool) -> None:
    recompute = draft(tmp_path, f"{processes}{RUN}{more}\n").plan.stack.recompute
    assert recompute is not None
    assert (recompute.kind, recompute.reentrant) == ("full", reentrant)


def test_one_process_over_several_devices_is_noted() -> None:
    found = read_any([str(FILES / "swift" / "several.sh")])
    assert {one.path for one in found.uncounted} >= {"device_map"}
    assert [(one.path, one.near) for one in found.unknown] == [("max_lenght", "max_length")]


def test_a_file_that_a_command_names_is_read_below_its_words(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text("model: meta-llama/Llama-3.2-1B\ntrain_type: full\nmax_length: 512\n")
    plan = draft(tmp_path, "NPROC_PER_NODE=2 swift sft sft.yaml --max_length 1024 --torch_dtype bfloat16\n").plan
    assert (plan.batch.sequence, plan.parallel.world, plan.adapter) == (1024, 2, None)


@pytest.mark.parametrize(
    "text", ["swift infer --model x\n", "megatron sft --model x\n", "swift export --model x\n", "python train.py\n"]
)
def test_other_commands_are_not_taken_for_training(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.sh").write_text(text)
    assert swift.identify(read_input(str(tmp_path / "run.sh"))) == 0


OLD = (
    "python swift/llm/llm_sft.py --model_id_or_path qwen --sft_type {kind} --dtype bf16 --max_length {length} "
    "--batch_size 1 --gradient_accumulation_steps 16 {more} --optim adamw_torch --use_flash_attn true\n"
)
LORA = "--lora_rank 8 --lora_dropout_p 0 --lora_target_modules q_proj k_proj v_proj"
BITS = f"{LORA} --quantization_bit 4 --bnb_4bit_use_double_quant false"


@pytest.mark.parametrize(
    "name, kind, more",
    [
        ("lora-qwen-7b-chat-1024", "lora", LORA),
        ("tuner-full", "full", ""),
        ("qwen-14b-chat-bitsandbytesint4", "lora", BITS),
    ],
)
def test_published_runs_as_commands_give_the_estimate_of_their_plan(
    tmp_path: Path, name: str, kind: str, more: str
) -> None:
    rows = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    plan = next(row["plan"] for row in rows if row["id"] == f"swift24-{name}")
    text = OLD.format(kind=kind, length=plan["batch"]["sequence"], more=more)
    (tmp_path / "run.sh").write_text(text)
    sets = [f"model={json.dumps(plan['model'])}", "device=a100-80gb"]
    found = read_any([str(tmp_path / "run.sh")], sets, versions={"ms-swift": "1.7", **plan["stack"]["versions"]})
    plan["stack"]["versions"]["accelerate"] = found.plan.stack.versions["accelerate"]  # says that the Trainer runs
    mine, theirs = estimate(found.plan), estimate(draft_of(Document(plan, {})).plan)
    assert mine.peak == theirs.peak


@settings(max_examples=150, deadline=None)
@given(mappings(SWIFT_KEYS, {"model": "llama-3.2-1b", "tuner_type": "lora", "dataset": "x"}))
def test_any_values_give_a_piece_or_problems(data: dict[str, Any]) -> None:
    read(swift, data)


@settings(max_examples=150, deadline=None)
@given(scripts(SWIFT_KEYS, "NPROC_PER_NODE=2 swift sft --model llama-3.2-1b"))
def test_any_command_line_gives_a_piece_or_problems(text: str) -> None:
    read(swift, text)


@pytest.mark.parametrize(
    ("kind", "task", "trl"),
    [("dpo", "dpo", None), ("kto", "kto", None), ("cpo", "simpo", "0.29.1"), ("orpo", "orpo", "0.29.1")],
)
def test_preferences_run_on_its_own_trainers_or_on_trls(tmp_path: Path, kind: str, task: str, trl: str | None) -> None:
    plan = draft(tmp_path, RUN.replace("sft", f"rlhf --rlhf_type {kind}")).plan
    assert (plan.task, plan.stack.versions.get("trl")) == (task, trl)
    assert estimate(plan).peak


def test_who_acts_in_grpo(tmp_path: Path) -> None:
    base = "swift rlhf --rlhf_type grpo --model meta-llama/Llama-3.2-1B --max_length 512 --torch_dtype bfloat16"
    full = "--train_type full --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.5 --sleep_level 1"
    away = "--offload_model true --offload_optimizer true --reward_model meta-llama/Llama-3.2-1B"
    (tmp_path / "run.sh").write_text(f"{base} {full} {away}")
    found = read_any([str(tmp_path / "run.sh")], ["device=h100-80gb"]).plan.roles
    assert found is not None
    assert [name for name, _ in found.given()] == ["policy", "reference", "reward", "rollout"]
    assert (found.of("policy").states, found.of("reference").states) == ({"rollout": "offloaded"},) * 2
    engine = found.of("rollout").engine
    assert engine is not None
    assert (engine.memory_share, engine.sleep_level) == (0.5, 1)
    for more, acting in (
        ("--train_type full --beta 0", ["policy"]),
        ("--train_type lora", ["policy"]),
        ("--train_type lora --use_vllm true --vllm_mode server", ["policy", "rollout"]),
    ):
        roles = draft(tmp_path, f"{base} {more}").plan.roles
        assert roles is not None
        assert [name for name, _ in roles.given()] == acting
    weighed = draft(tmp_path, f"{base.replace('grpo', 'dpo')} --rpo_alpha 0.5").plan
    assert weighed.stack.options["rpo_alpha"] == 0.5
