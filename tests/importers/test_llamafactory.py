"""LLaMA-Factory's files: what each says, what is refused and how, and that no file gives a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.importers.fuzz import mappings, read, scripts
from trainledger.base.problems import InputError
from trainledger.facts.import_llamafactory import LLAMAFACTORY_KEYS
from trainledger.importers import llamafactory
from trainledger.importers.draft import Draft
from trainledger.importers.inputs import read_input
from trainledger.importers.outside import read_any

FILES = Path(__file__).parent / "files"
BASE = "model_name_or_path: meta-llama/Llama-3.2-1B\nstage: sft\ncutoff_len: 512\nbf16: true\n"


def draft(tmp_path: Path, text: str, name: str = "run.yaml", **versions: str) -> Draft:
    path = tmp_path / name
    path.write_text(text)
    return read_any([str(path)], ["parallel.world=8"], versions=versions)


def refused(tmp_path: Path, text: str, name: str = "run.yaml") -> str:
    with pytest.raises(InputError) as caught:
        draft(tmp_path, text, name)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    "text, words",
    [
        ("stage: sft\ncutoff_len: 1\n", "model_name_or_path: missing; the model that is trained is needed"),
        (
            f"{BASE}finetuning_type: lroa\n",
            "found 'lroa'; one of lora, full, freeze, oft can be read. Did you mean lora?",
        ),
        (BASE.replace("sft", "sftt"), "run.yaml:2 stage: found 'sftt'"),
        (f"{BASE}finetuning_type: full\nquantization_bit: 4\n", "found 4; quantised weights need LoRA or OFT"),
        (f"{BASE}quantization_bit: 3\n", "found 3; 4 or 8 bits of bitsandbytes can be read"),
        (f"{BASE}quantization_bit: 4\nquantization_method: hqq\n", "4 or 8 bits of bitsandbytes can be read"),
        (f"{BASE}flash_attn: fa1\n", "flash_attn: found 'fa1'; one of fa2, fa3, sdpa, disabled, auto can be read"),
        (f"{BASE}use_mca: true\n", "Megatron under LLaMA-Factory cannot be read. Give a plan of the run."),
        (f"{BASE}deepspeed: my.json\n", "run.yaml:5 deepspeed: input: my.json: no such file"),
        (f"{BASE}gradient_accumulation_steps: -2\n", "a whole number of 1 or more is needed"),
        (
            f"{BASE}finetuning_type: freeze\n".replace("meta-llama/Llama-3.2-1B", "nobody/nothing"),
            "the model's number of layers is needed",
        ),
        (f"{BASE}optim: adamw_torhc\n", "Did you mean adamw_torch?"),
        ("model: Qwen/Qwen3-4B\nmodel_class: llm\ndist_config: {name: fsdp2}\n", "LLaMA-Factory's v1 trainer"),
        (f"{BASE}bf16: false\n", "given twice"),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text)


@pytest.mark.parametrize(
    "script, words",
    [
        ("llamafactory-cli train nowhere.yaml\n", "run.sh:1: input: nowhere.yaml: no such file"),
        (
            "llamafactory-cli train --stage sft --model_name_or_path $WHICH\n",
            "found $WHICH; a value that nothing here sets",
        ),
    ],
)
def test_a_broken_command_says_what_is_wrong(tmp_path: Path, script: str, words: str) -> None:
    assert words in refused(tmp_path, script, "run.sh")


@pytest.mark.parametrize(
    "more, weights",
    [
        ("finetuning_type: full\n", "fp32"),
        ("finetuning_type: full\npure_bf16: true\n", "bf16"),
        ("finetuning_type: full\nuse_badam: true\n", "bf16"),
        ("finetuning_type: full\ndeepspeed: ds_z2_config.json\n", "bf16"),  # DeepSpeed casts again
        ("finetuning_type: lora\n", "bf16"),
        ("quantization_bit: 4\n", "bf16"),
    ],
)
def test_what_is_trained_is_float32_unless_it_is_turned_off(tmp_path: Path, more: str, weights: str) -> None:
    assert draft(tmp_path, BASE + more).plan.precision.weights == weights


def test_recompute_is_on_with_reentrance(tmp_path: Path) -> None:
    recompute = draft(tmp_path, BASE).plan.stack.recompute
    assert recompute is not None
    assert (recompute.kind, recompute.reentrant) == ("full", True)
    off = draft(tmp_path, f"{BASE}disable_gradient_checkpointing: true\n").plan.stack.recompute
    assert off is not None
    assert off.kind == "none"


@pytest.mark.parametrize("release, length", [("0.9.1", 1024), ("0.9.3", 2048)])
def test_the_length_is_that_of_the_release(tmp_path: Path, release: str, length: int) -> None:
    found = draft(tmp_path, BASE.replace("cutoff_len: 512\n", ""), llamafactory=release)
    assert found.plan.batch.sequence == length
    assert next(one for one in found.defaulted if one.path == "batch.sequence").why == f"cutoff_len {length}"


@pytest.mark.parametrize(
    "layers, trained",
    [
        ("2", ["layers.14", "layers.15"]),
        ("-1", ["layers.0"]),
        ("4\nuse_llama_pro: true", [f"layers.{at}" for at in (3, 7, 11, 15)]),
    ],
)
def test_freeze_names_the_layers_that_are_trained(tmp_path: Path, layers: str, trained: list[str]) -> None:
    plan = draft(tmp_path, f"{BASE}finetuning_type: freeze\nfreeze_trainable_layers: {layers}\n").plan
    assert list(plan.trainable) == trained


@pytest.mark.parametrize(
    "length, more, expected",
    [(512, "", 512), (500, "", 504), (512, "packing: true\n", 520), (512, "neat_packing: true\n", 520)],
)
def test_the_collator_pads_to_a_multiple(tmp_path: Path, length: int, more: str, expected: int) -> None:
    assert draft(tmp_path, BASE.replace("512", str(length)) + more).plan.batch.sequence == expected
    packed = BASE.replace("512", str(length)).replace("sft", "pt") + more
    assert draft(tmp_path, packed).plan.batch.sequence == length


def test_freeze_knows_a_tuned_model_by_the_one_that_it_was_tuned_from(tmp_path: Path) -> None:
    text = f"{BASE}finetuning_type: freeze\n".replace("Llama-3.2-1B", "Llama-3.2-1B-Instruct")
    assert list(draft(tmp_path, text).plan.trainable) == ["layers.14", "layers.15"]


def test_keys_of_generation_are_not_the_length(tmp_path: Path) -> None:
    assert draft(tmp_path, f"{BASE}max_length: 9999\nmax_new_tokens: 5\n").plan.batch.sequence == 512


def test_a_commands_words_count_before_its_files() -> None:
    plan = read_any([str(FILES / "llamafactory" / "full-z3" / "run.sh")]).plan
    assert (plan.batch.micro_batch, plan.batch.accumulation, plan.parallel.world) == (2, 1, 8)


def test_other_files_are_not_taken_for_llamafactorys(tmp_path: Path) -> None:
    for name, text in (
        ("a.yml", "base_model: x\nadapter: lora\n"),
        ("b.yml", "model_name_or_path: x\nper_device_train_batch_size: 1\n"),
        ("c.sh", "llamafactory-cli export --model_name_or_path x\n"),
    ):
        (tmp_path / name).write_text(text)
        assert llamafactory.identify(read_input(str(tmp_path / name))) == 0


@settings(max_examples=150, deadline=None)
@given(mappings(LLAMAFACTORY_KEYS, {"model_name_or_path": "llama-3.2-1b"}))
def test_any_values_give_a_piece_or_problems(data: dict[str, Any]) -> None:
    read(llamafactory, data)


@settings(max_examples=150, deadline=None)
@given(scripts(LLAMAFACTORY_KEYS, "llamafactory-cli train --stage sft --model_name_or_path llama-3.2-1b"))
def test_any_command_line_gives_a_piece_or_problems(text: str) -> None:
    read(llamafactory, text)
