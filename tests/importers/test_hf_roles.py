"""GRPO as TRL's arguments say it: who acts, whether a reference is a second model, and which tokens count."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainledger.base.problems import InputError
from trainledger.importers.outside import read_any
from trainledger.plan.schema import Plan

VERSIONS = {"torch": "2.14.1", "transformers": "5.24.0", "accelerate": "1.15.0"}
ARGUMENTS = {
    "model_name_or_path": "Qwen/Qwen2.5-1.5B",
    "num_generations": 8,
    "max_prompt_length": 512,
    "max_completion_length": 1024,
    "per_device_train_batch_size": 8,
    "bf16": "true",
}


def plan(folder: Path, trl: str = "1.16.0", command: str = "", **more: object) -> Plan:
    """What a file of arguments is read as, or the command that names it."""
    text = "".join(f"{name}: {value}\n" for name, value in {**ARGUMENTS, **more}.items())
    (folder / "grpo.yaml").write_text(text, encoding="utf-8")
    (folder / "run.sh").write_text(f"{command}\n", encoding="utf-8")
    read = folder / ("run.sh" if command else "grpo.yaml")
    return read_any([str(read)], versions={**VERSIONS, "trl": trl}).plan


def acting(found: Plan) -> list[str]:
    assert found.roles is not None
    return [name for name, _ in found.roles.given()]


@pytest.mark.parametrize(
    ("trl", "more", "expected"),
    [
        ("1.16.0", {}, ["policy"]),
        ("1.16.0", {"beta": 0.1}, ["policy", "reference"]),
        ("1.16.0", {"force_use_ref_model": "true"}, ["policy", "reference"]),
        ("1.16.0", {"beta": 0.1, "use_peft": "true"}, ["policy"]),
        ("0.18.2", {}, ["policy", "reference"]),
        ("0.18.2", {"beta": 0.0}, ["policy"]),
        ("0.18.2", {"use_peft": "true"}, ["policy"]),
        ("0.19.0", {}, ["policy"]),
    ],
)
def test_a_reference_is_a_second_model(tmp_path: Path, trl: str, more: dict[str, object], expected: list[str]) -> None:
    assert acting(plan(tmp_path, trl, **more)) == expected


def test_completions_count_where_they_fit_the_sequence(tmp_path: Path) -> None:
    assert plan(tmp_path).batch.loss_tokens == 1024
    assert plan(tmp_path, max_length=512).batch.loss_tokens is None


def test_a_command_reads_its_files_roles(tmp_path: Path) -> None:
    command = f"trl grpo --num_processes 1 --config {tmp_path / 'grpo.yaml'}"
    assert acting(plan(tmp_path, command=command, beta=0.1)) == ["policy", "reference"]
    assert acting(plan(tmp_path, command=f"{command} --use_peft", beta=0.1)) == ["policy"]
    assert plan(tmp_path, command=command).batch.loss_tokens == 1024


def test_the_loss_goes_by_the_release(tmp_path: Path) -> None:
    losses = {trl: plan(tmp_path, trl).stack.loss for trl in ("0.19.1", "1.14.0", "1.15.0", "1.16.0")}
    assert losses == {"0.19.1": "full-fp32", "1.14.0": "full-fp32", "1.15.0": "fused-linear", "1.16.0": "fused-linear"}


def test_a_reward_model_is_a_role(tmp_path: Path) -> None:
    found = plan(tmp_path, reward_model_name_or_path="qwen2.5-7b", steps_per_generation=16)
    assert acting(found) == ["policy", "reward"]
    assert found.stack.options["steps_per_generation"] == 16
    assert acting(plan(tmp_path)) == ["policy"]


@pytest.mark.parametrize(
    ("trl", "mode", "placement"),
    [("0.17.0", "", 1), ("0.29.1", "", 1), ("0.29.1", "colocate", "colocated"), ("1.0.0", "", "colocated"),
     ("1.16.0", "server", 1)],
)  # fmt: skip
def test_vllm_is_colocated_or_a_server(tmp_path: Path, trl: str, mode: str, placement: object) -> None:
    """A server by default before 1.0; the policy does not generate beside it."""
    more = {"vllm_mode": mode} if mode else {}
    device = {"vllm_gpu_memory_utilization": 0.3} if placement == "colocated" else {}
    found = plan(tmp_path, trl, use_vllm="true", **more, **device)
    assert found.roles is not None
    assert found.roles.of("rollout").placement == placement
    assert (found.roles.of("rollout").engine is None) == (placement == 1)


def test_a_teacher_is_a_role_of_distillation(tmp_path: Path) -> None:
    (tmp_path / "gkd.yaml").write_text(
        "model_name_or_path: qwen2.5-0.5b\nteacher_model_name_or_path: qwen2.5-7b\nlmbda: 0.5\n"
        "per_device_train_batch_size: 2\nmax_length: 512\nbf16: true\n"
    )
    found = read_any([str(tmp_path / "gkd.yaml")], versions={**VERSIONS, "trl": "1.16.0"})
    assert found.plan.task == "distill"
    assert acting(found.plan) == ["policy", "teacher"]
    assert not found.unknown


@pytest.mark.parametrize(
    ("trl", "said", "sequence", "counted"),
    [
        ("0.24.0", {}, 768, 256),
        ("0.24.0", {"max_completion_length": 1024}, 1536, 1024),
        ("0.24.0", {"max_prompt_length": 128}, 384, 256),
        ("1.16.0", {"max_completion_length": 1024}, 1536, 1024),  # prompts are not cut
        ("1.16.0", {}, 1024, 512),
        ("1.9.0", {"max_length": 4096}, 4096, None),
    ],
)
def test_lengths_that_are_not_said(
    tmp_path: Path, trl: str, said: dict[str, object], sequence: int, counted: int | None
) -> None:
    found = plan(tmp_path, trl, **{"max_prompt_length": "null", "max_completion_length": "null", **said})
    assert (found.batch.sequence, found.batch.loss_tokens) == (sequence, counted)


@pytest.mark.parametrize(("release", "told"), [("0.25.1", False), ("0.26.0", True)])
def test_prompts_that_are_not_cut_are_told(tmp_path: Path, release: str, told: bool) -> None:
    text = "".join(f"{name}: {value}\n" for name, value in ARGUMENTS.items() if name != "max_prompt_length")
    (tmp_path / "grpo.yaml").write_text(text, encoding="utf-8")
    draft = read_any([str(tmp_path / "grpo.yaml")], versions={**VERSIONS, "trl": release})
    assert any("prompts are not cut" in one.path for one in draft.uncounted) == told


@pytest.mark.parametrize(
    ("more", "expected"),
    [("", ["policy", "reference"]), (" --beta 0", ["policy"]), (" --use_peft --lora_r 8", ["policy"])],
)
def test_rloo_has_a_reference_unless_told(tmp_path: Path, more: str, expected: list[str]) -> None:
    found = plan(tmp_path, command=f"trl rloo --num_processes 1 --config {tmp_path / 'grpo.yaml'}{more}")
    assert (found.task, acting(found)) == ("grpo", expected)


@pytest.mark.parametrize(
    "command",
    [
        "trl ppo",
        "trl nash_md",
        "accelerate launch examples/scripts/ppo/ppo.py",
        "accelerate launch examples/scripts/dpo_online.py",
        "python examples/scripts/prm.py",
    ],
)
def test_trainers_without_a_task_are_refused(tmp_path: Path, command: str) -> None:
    with pytest.raises(InputError, match="of TRL's trainers those of"):
        plan(tmp_path, command=f"{command} --model_name_or_path gpt2 --per_device_train_batch_size 4 --max_length 512")


def test_rloo_of_other_code_is_refused(tmp_path: Path) -> None:
    command = f"trl rloo --num_processes 1 --config {tmp_path / 'grpo.yaml'}"
    with pytest.raises(InputError, match="RLOO of TRL"):
        plan(tmp_path, "0.21.0", command)


@pytest.mark.parametrize(
    ("keys", "task"),
    [
        ("max_prompt_length: 512\ncpo_alpha: 0.5", "simpo"),
        ("max_completion_length: 512\nmax_prompt_length: 512\nsimpo_gamma: 0.5", "simpo"),
        ("max_prompt_length: 512\ngamma_beta_ratio: 0.5", "simpo"),
        ("max_completion_length: 512\nprecompute_ref_log_probs: true", "dpo"),
        ("max_completion_length: 512\nmax_prompt_length: 512", "grpo"),
        ("max_prompt_length: 512\nbeta: 0.1", "dpo"),
    ],
)
def test_what_one_trainer_alone_has_says_what_is_trained(keys: str, task: str, tmp_path: Path) -> None:
    """CPO's and SimPO's were read as DPO's, with a reference that they do not have."""
    (tmp_path / "a.yaml").write_text(
        f"model_name_or_path: gpt2\nper_device_train_batch_size: 1\nmax_length: 512\n{keys}\n"
    )
    draft = read_any([str(tmp_path / "a.yaml")])
    assert (draft.plan.task, draft.unknown) == (task, ())
