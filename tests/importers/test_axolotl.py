"""Axolotl's files: what each says, what is refused and how, and that no file gives a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.importers.fuzz import mappings, read, scripts
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.facts.import_axolotl import AXOLOTL_KEYS, MISTAKEN
from trainledger.importers import axolotl
from trainledger.importers.draft import Draft
from trainledger.importers.inputs import read_input
from trainledger.importers.outside import read_any

FILES = Path(__file__).parent / "files"
WORLD = ("parallel.world=8",)
BASE = "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 512\ndatasets: []\n"
LORA = f"{BASE}adapter: lora\nlora_r: 8\n"


def draft(tmp_path: Path, text: str, sets: tuple[str, ...] = (), **versions: str) -> Draft:
    path = tmp_path / "run.yml"
    path.write_text(text)
    return read_any([str(path)], sets, versions=versions)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        draft(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    "text, words",
    [
        ("sequence_len: 512\nbase_model:\n", "base_model: missing; the model that is trained is needed"),
        (f"{BASE}adapter: lora\n", "lora_r: missing; the rank of the lora adapter is needed. Give lora_r."),
        (f"{BASE}adapter: loral\nlora_r: 8\n", "found 'loral'; one of lora, qlora can be read. Did you mean lora?"),
        (f"{BASE}adapter: qlora\nlora_r: 8\n", "run.yml:4 adapter: load_in_4bit: not true; adapter: qlora needs it"),
        (f"{LORA}load_in_4bit: true\n", "load_in_4bit: found True; adapter: lora leaves the weights as they are"),
        (f"{BASE}load_in_8bit: true\n", "load_in_8bit: found True; weights in fewer bits need an adapter"),
        (f"{BASE}micro_batch_size: two\n", "run.yml:4 micro_batch_size"),
        (
            f"{BASE}optimizer: adamw_tor\n",
            "found 'adamw_tor'; an optimizer of the Trainer that has a rule is needed. Did you mean adamw_torch?",
        ),
        (f"{BASE}attn_implementation: flash\nbf16: maybe\n", "bf16"),
        (f"{BASE}rl: ppo\n", "rl: found 'ppo'; one of dpo, ipo, orpo, kto, simpo, grpo, gdpo can be read"),
        (f"{BASE}deepspeed: ds.json\n", "run.yml:4 deepspeed: input: ds.json: no such file"),
        (
            f"{BASE}deepspeed: deepspeed_configs/zero1.json\nfsdp: [full_shard]\n",
            "FSDP and DeepSpeed exclude each other",
        ),
        (
            "base_model: x\nmax_seq_length: 4096\ndatasets: []\n",
            "Axolotl has no such key, and cuts at 512 tokens. Write sequence_len.",
        ),
        ("base_model: a\nbase_model: b\nadapter: lora\n", "given twice (first at run.yml:1)"),
        ("base_model: [\n", "broken YAML"),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    assert words in refused(tmp_path, text)


def test_every_problem_is_listed_at_once(tmp_path: Path) -> None:
    text = refused(tmp_path, f"{BASE}adapter: lora\nrl: ppo\noptimizer: adamx\n")
    assert all(f"run.yml:{line}" in text for line in (5, 6))
    assert "lora_r: missing" in text


def test_keys_that_people_mistake_lead_to_the_right_one(tmp_path: Path) -> None:
    read_keys = {row.name for row in AXOLOTL_KEYS}
    assert set(MISTAKEN.values()) <= read_keys
    assert not set(MISTAKEN) & read_keys
    found = draft(tmp_path, f"{LORA}sequence_length: 99\n")
    assert [(one.path, one.near) for one in found.unknown] == [("sequence_length", "sequence_len")]


@pytest.mark.parametrize(
    "more, expected",
    [("", 1024), ("pad_to_sequence_len: false\n", 1000), ("pad_to_multiple_of: 8\n", 1000), ("rl: dpo\n", 1000)],
)
def test_the_collator_pads_to_a_multiple(tmp_path: Path, more: str, expected: int) -> None:
    text = BASE.replace("512", "1000") + more
    assert draft(tmp_path, text).plan.batch.sequence == expected


def test_defaults_are_those_of_the_release(tmp_path: Path) -> None:
    text = f"{LORA}gradient_checkpointing: true\n"
    old, new = (draft(tmp_path, text, axolotl=release) for release in ("0.9.2", "0.18.0"))
    assert new.plan.stack.recompute is not None
    assert new.plan.stack.recompute.reentrant is False
    row = next(one for one in new.defaulted if one.path == "stack.recompute.reentrant")
    assert "core/builders" in row.source.where
    assert "stack.recompute.reentrant" not in {one.path for one in old.used}
    assert not any("builders" in one.source.where for one in old.defaulted if one.path == "stack.recompute.reentrant")


def test_lora_kernels_are_on_by_themselves_and_can_be_turned_off(tmp_path: Path) -> None:
    def noted(text: str, **versions: str) -> bool:
        return any(one.path == "lora_mlp_kernel" for one in draft(tmp_path, text, (), **versions).uncounted)

    assert noted(LORA)
    assert not noted(f"{LORA}lora_mlp_kernel: false\n")
    assert not noted(f"{LORA}rl: simpo\n")
    assert not noted(LORA, axolotl="0.8.1")
    assert not noted(f"{LORA}lora_dropout: 0.1\n", axolotl="0.9.2")
    assert noted(f"{LORA}lora_dropout: 0.1\n", axolotl="0.18.0")


@pytest.mark.parametrize(
    "name", ["zero1", "zero2", "zero3", "zero3_bf16", "zero3_bf16_cpuoffload_params", "zero3_bf16_cpuoffload_all"]
)
def test_settings_that_axolotl_carries_are_known_by_name(tmp_path: Path, name: str) -> None:
    plan = draft(tmp_path, f"{BASE}deepspeed: deepspeed_configs/{name}.json\nbf16: true\n", WORLD).plan
    assert plan.parallel.strategy == name[: len("zeroN")]
    assert (plan.offload.params == "cpu") == ("cpuoffload" in name)
    assert (plan.offload.optimizer == "cpu") == (name == "zero2" or name.endswith("all"))


def test_a_file_of_settings_beside_it_counts_before_what_is_carried(tmp_path: Path) -> None:
    (tmp_path / "zero1.json").write_text('{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}')
    assert draft(tmp_path, f"{BASE}deepspeed: zero1.json\nbf16: true\n", WORLD).plan.parallel.strategy == "zero2"
    assert (
        draft(tmp_path, f"{BASE}deepspeed: {{zero_optimization: {{stage: 1}}}}\n", WORLD).plan.parallel.strategy
        == "zero1"
    )


def test_a_commands_words_count_before_its_files() -> None:
    plan = read_any([str(FILES / "axolotl" / "full-zero3" / "run.sh")]).plan
    assert (plan.batch.micro_batch, plan.batch.accumulation, plan.parallel.world) == (2, 2, 4)


def test_the_number_of_processes_is_asked_for_where_weights_are_sharded() -> None:
    path = str(FILES / "axolotl" / "full-zero3" / "full-zero3.yml")
    with pytest.raises(InputError, match="no file says over how many ranks it shards"):
        read_any([path])
    assert read_any([path], ["parallel.world=8"]).plan.parallel.world == 8


def test_norms_are_float32_without_flash_attention(tmp_path: Path) -> None:
    def noted(text: str) -> bool:
        return any(one.path == "base_model" for one in draft(tmp_path, text).uncounted)

    assert noted(BASE)
    assert noted(f"{BASE}sdp_attention: true\n")
    assert not any(noted(text) for text in (LORA, f"{BASE}flash_attention: true\n", f"{BASE}bf16: false\n"))


def test_other_files_are_not_taken_for_axolotls(tmp_path: Path) -> None:
    for text in (
        "model_name_or_path: x\nstage: sft\n",
        "model: {model_type: llama}\nbatch: {micro_batch: 1}\n",
        "- a\n",
    ):
        path = tmp_path / "other.yml"
        path.write_text(text)
        assert axolotl.identify(read_input(str(path))) == 0


@pytest.mark.parametrize(
    ("names", "trained"),
    [
        (["^lm_head.weight$", "model.layers.1[0-5]+."], ["lm_head.weight", "model.layers.1[0-5]*"]),
        (["model.layers.(14|15)."], ["model.layers.14", "model.layers.15"]),
        (["^model.embed_tokens.weight$[:32000]"], ["model.embed_tokens.weight"]),
        (["model.layers.15.mlp.down_proj"], ["model.layers.15.mlp.down_proj*"]),
    ],
)
def test_axolotl_s_unfrozen_parameters(tmp_path: Path, names: list[str], trained: list[str]) -> None:
    text = f"{BASE}micro_batch_size: 1\nunfrozen_parameters:\n" + "".join(f"  - {name}\n" for name in names)
    plan = draft(tmp_path, text).plan
    assert list(plan.trainable) == trained
    assert 0 < estimate(plan).parameters.trainable < estimate(plan).parameters.total


@settings(max_examples=150, deadline=None)
@given(mappings(AXOLOTL_KEYS, {"base_model": "llama-3.2-1b"}))
def test_any_values_give_a_piece_or_problems(data: dict[str, Any]) -> None:
    read(axolotl, data)


@settings(max_examples=150, deadline=None)
@given(scripts(AXOLOTL_KEYS, f"axolotl train {FILES / 'axolotl' / 'orpo.yml'}"))
def test_any_command_line_gives_a_piece_or_problems(text: str) -> None:
    read(axolotl, text)


@pytest.mark.parametrize(
    ("release", "trl", "loss"),
    [
        ({}, "1.8.0", "full-fp32"),
        ({"axolotl": "0.12.2"}, "0.21.0", "full-fp32"),
        ({"trl": "1.16.0"}, "1.16.0", "fused-linear"),
    ],
)
def test_preferences_run_on_the_trl_that_a_release_installs(
    tmp_path: Path, release: dict[str, str], trl: str, loss: str
) -> None:
    plan = draft(tmp_path, f"{BASE}rl: dpo\nbf16: true\n", **release).plan
    assert (plan.stack.versions["trl"], plan.stack.loss) == (trl, loss)


def test_shares_of_the_chosen_are_options(tmp_path: Path) -> None:
    plan = draft(tmp_path, f"{BASE}rl: simpo\ncpo_alpha: 0.0\nbf16: true\n").plan
    assert (plan.task, plan.stack.options["cpo_alpha"]) == ("simpo", 0.0)


def test_what_it_saves_and_evaluates(tmp_path: Path) -> None:
    text = f"{BASE}micro_batch_size: 1\nsave_total_limit: 1\nload_best_model_at_end: true\nsave_only_model: true\n"
    save = draft(tmp_path, text).plan.save
    assert save is not None
    assert (save.limit, save.optimizer) == (2, False)  # the best one, and the last
    more = f"{BASE}micro_batch_size: 1\neval_batch_size: 4\n"
    assert draft(tmp_path, more).plan.evaluation is None  # there is no set to evaluate
    evaluation = draft(tmp_path, f"{more}val_set_size: 0.1\n").plan.evaluation
    assert evaluation is not None
    assert evaluation.micro_batch == 4


def test_who_acts_in_grpo_and_how_dpo_weighs(tmp_path: Path) -> None:
    trl = "rl: grpo\ntrl: {beta: 0.001, max_completion_length: 256, num_generations: 4, use_vllm: true}\n"
    found = draft(tmp_path, BASE + trl, trl="0.24.0").plan
    assert found.roles is not None
    assert [name for name, _ in found.roles.given()] == ["policy", "reference", "rollout"]
    assert found.roles.of("rollout").placement == 1
    assert found.batch.loss_tokens == 256
    own = "trl: {num_generations: 4, use_vllm: true, vllm_mode: colocate, vllm_enable_sleep_mode: true}\n"
    colocated = draft(
        tmp_path, f"{BASE}rl: grpo\n{own}vllm: {{gpu_memory_utilization: 0.4}}\n", ("device=h100-80gb",)
    ).plan
    assert colocated.roles is not None
    engine = colocated.roles.of("rollout").engine
    assert engine is not None
    assert (engine.memory_share, engine.sleep_level) == (0.4, 2)
    assert "reference" not in dict(colocated.roles.given())
    weighed = draft(tmp_path, f"{BASE}rl: dpo\ndpo_use_weighting: true\ndpo_loss_type: [sigmoid, sft]\n").plan
    assert weighed.stack.options["use_weighting"] is True
    assert weighed.stack.options["loss_type"] == ["sigmoid", "sft"]
