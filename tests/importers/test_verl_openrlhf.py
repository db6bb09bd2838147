"""verl's and OpenRLHF's command lines: any text makes a piece, roles are listed, the estimate refuses by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.answer.acting import rows_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.facts.import_rl import NAMES, OPENRLHF_ROWS, VERL_READ, VERL_ROWS
from trainledger.importers import openrlhf, verl
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.outside import read_any
from trainledger.importers.piece import Piece
from trainledger.importers.script import parse_script

FILES = Path(__file__).parent / "files"


def of(module: Any, text: str) -> Piece:
    piece: Piece = module.extract(Input("s.sh", "", script=parse_script(text, "s.sh", {})), Context())
    return piece


@pytest.mark.parametrize(
    "file, roles, phases",
    [
        ("verl/grpo.sh", "policy, reference, rollout", 5),
        ("verl/ppo_critic.sh", "policy, critic, rollout", 6),
        ("verl/megatron.sh", "policy, critic, rollout", 6),
        ("openrlhf/ppo_new.sh", "policy, reference, critic, rollout", 7),
        ("trl/grpo_vllm.yaml", "policy, rollout", 4),
    ],
)
def test_who_acts_is_read(file: str, roles: str, phases: int) -> None:
    draft = read_any([str(FILES / file)], ["device=h100-80gb"])
    found = estimate(draft.plan)
    assert found.groups[0].name == roles
    assert len([row for row in rows_of(found.plan, found.groups) if row.group == roles]) == phases


def test_checkpoints_that_are_kept_are_read() -> None:
    text = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=gpt2 trainer.max_actor_ckpt_to_keep=2"
    assert of(verl, text).given["save.limit"].value == 2
    text = "deepspeed --module openrlhf.cli.train_sft --pretrain gpt2 --max_ckpt_num 3 --save_hf_ckpt"
    given = of(openrlhf, text).given
    assert (given["save.limit"].value, given["save.export"].value) == (3, True)


def test_a_share_of_a_device_needs_one() -> None:
    with pytest.raises(InputError, match=r"roles.rollout.engine.memory_share: given without a device"):
        estimate(read_any([str(FILES / "verl" / "grpo.sh")]).plan)


def test_keys_of_roles_become_keys_of_the_plan() -> None:
    roles = read_any([str(FILES / "verl" / "grpo.sh")]).plan.roles
    assert roles is not None
    engine = roles.of("rollout").engine
    assert engine is not None
    assert (engine.memory_share, engine.sleep_level) == (0.6, 2)
    assert (roles.of("reference").forward_batch, roles.of("reference").states) == (16, {"idle": "offloaded"})
    old = read_any([str(FILES / "openrlhf" / "ppo_old.sh")]).plan.roles
    assert old is not None
    assert old.of("reward").model is not None
    assert old.of("policy").forward_batch == 16
    assert {old.of(name).placement for name in ("reference", "reward", "rollout")} == {"colocated"}


def test_megatron_trains_with_its_own_degrees_and_states() -> None:
    base = "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml"
    one, ref, critic = "actor_rollout_ref.actor.megatron.", "actor_rollout_ref.ref.megatron.", "critic.megatron."
    again = f"+{one}override_transformer_config.recompute_"
    found = of(
        verl,
        f"{base} actor_rollout_ref.model.path=m actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 "
        f"{one}tensor_model_parallel_size=4 {one}pipeline_model_parallel_size=2 {one}param_offload=True "
        f"{one}optimizer_offload=True {ref}tensor_model_parallel_size=2 {critic}optimizer_offload=True "
        f"{again}granularity=full {again}method=uniform {again}num_layers=1 actor_rollout_ref.actor.use_kl_loss=True "
        "actor_rollout_ref.actor.entropy_coeff=0.01 actor_rollout_ref.model.enable_gradient_checkpointing=False",
    )
    said = {path: one.value for path, one in found.given.items()}
    assert said["stack.framework"] == "megatron-bridge"
    assert [said[f"parallel.{key}"] for key in ("strategy", "tp", "pp", "sp")] == ["megatron-distopt", 4, 2, True]
    recompute = {path.rpartition(".")[2]: value for path, value in said.items() if path.startswith("stack.recompute")}
    assert recompute == {"kind": "full", "method": "uniform", "num_layers": 1}
    assert said["stack.options.entropy_coeff"] == 0.01
    assert said["roles.policy.states.idle"] == "offloaded"
    assert said["roles.reference.states.idle"] == "offloaded"  # as the policy's
    assert [said[f"roles.reference.parallel.{key}"] for key in ("tp", "pp")] == [2, 2]
    assert said["roles.critic.states.idle"] == "optimizer-offloaded"
    assert said["roles.critic.parallel.tp"] == 1  # the critic names its own, and 1 of what it does not


def test_packed_tokens_are_each_devices() -> None:
    base, own = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=m", "actor_rollout_ref.actor."
    packed = f"{base} {own}use_dynamic_bsz=True {own}ppo_max_token_len_per_gpu=1000"
    for more, tokens in (
        ("", 1000),
        (f"{own}ulysses_sequence_parallel_size=2", 2000),
        (f"{own}megatron.context_parallel_size=4", 4000),
    ):
        assert of(verl, f"{packed} {more}").given["batch.sequence"].value == tokens


def test_packed_rows_of_the_roles() -> None:
    base, own = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=m", "actor_rollout_ref."
    packed = f"{base} {own}actor.use_dynamic_bsz=True"
    alone = of(verl, packed)
    assert alone.filled["batch.sequence"].value == 16384
    assert alone.filled["roles.critic.batch.sequence"].value == 32768
    more = f"{own}actor.ppo_max_token_len_per_gpu=1000 {own}rollout.log_prob_max_token_len_per_gpu=2500"
    said = of(verl, f"{packed} {more} critic.ppo_max_token_len_per_gpu=3000 {own}actor.use_kl_loss=True")
    assert said.given["roles.policy.forward_batch"].value == 3
    assert "roles.reference.forward_batch" not in said.given
    assert said.given["roles.critic.batch.sequence"].value == 3000
    spread = f"{own}actor.megatron.context_parallel_size=2 critic.megatron.context_parallel_size=4"
    wide = of(verl, f"{packed} {more} {spread} critic.ppo_max_token_len_per_gpu=3000").given
    assert [wide[path].value for path in ("batch.sequence", "roles.critic.batch.sequence")] == [2000, 12000]


def test_sglang_is_sent_buckets() -> None:
    base = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=m actor_rollout_ref.rollout.name"
    path = "roles.rollout.engine.bucket"
    assert of(verl, f"{base}=sglang").filled[path].value == 512 * 2**20
    size = "actor_rollout_ref.rollout.update_weights_bucket_megabytes=64"
    assert of(verl, f"{base}=sglang {size}").given[path].value == 64 * 2**20
    assert path not in of(verl, f"{base}=vllm {size}").given


def test_what_else_megatron_scripts_say_is_kept_apart() -> None:
    base = "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml actor_rollout_ref.model.path=m"
    one = "actor_rollout_ref.actor."
    found = of(
        verl,
        f"{base} {one}ppo_micro_batch_size_per_gpu=1 reward_model.enable=True "
        f"{one}megatron.use_dist_checkpointing=True "
        f"+{one}megatron.override_transformer_config.moe_router_dtype=fp32 {one}megatron.sequence_parallel=False "
        f"{one}megatron.tensor_model_parallel_size=2 {one}megatron.use_distributed_optimizer=False "
        "actor_rollout_ref.model.lora.rank=8",
    )
    names = [each.path for each in found.uncounted]
    assert "reward_model.enable" in names
    assert f"{one}megatron.override_transformer_config.moe_router_dtype" in names
    assert not [each for each in names if "dist_checkpointing" in each]
    said = {path: each.value for path, each in found.given.items()}
    assert (said["parallel.strategy"], said["parallel.sp"]) == ("megatron-ddp", False)
    assert said["adapter.kind"] == "lora"  # which Megatron-Core's roles refuse
    assert "roles.reference.placement" not in said


def test_overrides_are_hydras() -> None:
    own = "actor_rollout_ref."
    found = of(
        verl,
        "python -m verl.trainer.main_ppo ++data.max_prompt_length=1 data.max_prompt_length=3 "
        f"{own}model.path=m {own}actor.ppo_micro_batch_size_per_gpu=2",
    )
    assert found.given["batch.sequence"].value == 515
    assert found.given["batch.sequence"].where == "data.max_response_length"


def test_tables_name_each_key_once() -> None:
    for rows in (VERL_ROWS, OPENRLHF_ROWS):
        assert len({row.name for row in rows}) == len(rows)


WORDS = st.one_of(
    st.text(alphabet="ab01.=-[]$\"' {}", max_size=8), st.sampled_from(["1", "0", "-1", "true", "null", "[a]", "bf16"])
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(VERL_READ.split()), WORDS), max_size=10))
def test_any_overrides_make_a_piece(pairs: list[tuple[str, str]]) -> None:
    text = " ".join(f"{key}={value!r}" for key, value in pairs)
    assert isinstance(of(verl, f"python -m verl.trainer.main_ppo {text}"), Piece)
    data: dict[str, Any] = {"actor_rollout_ref": {"model": dict(pairs)}, "data": [1]}
    found = Input("v.yaml", "", Document(data, {}))
    assert verl.identify(found)
    assert isinstance(verl.extract(found, Context()), Piece)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from([name for names in NAMES.values() for name in names]), WORDS), max_size=10))
def test_any_arguments_make_a_piece(pairs: list[tuple[str, str]]) -> None:
    text = " ".join(f"{key} {value!r}" for key, value in pairs)
    assert isinstance(of(openrlhf, f"deepspeed --module openrlhf.cli.train_sft {text}"), Piece)


def test_an_adapter_from_a_file_is_its_own_reference() -> None:
    base, own = "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo", "actor_rollout_ref."
    micro = f"{own}model.path=m {own}actor.ppo_micro_batch_size_per_gpu=2 {own}actor.use_kl_loss=True"
    found = of(verl, f"{base} {micro} {own}model.lora_adapter_path=/saved")
    assert found.given["adapter.kind"].value == "lora"
    assert not any(path.startswith("roles.reference") for path in (*found.given, *found.filled))
    assert [one.path for one in found.uncounted] == [f"{own}model.lora_adapter_path"]
    name = "--config-name=ppo_megatron_trainer.yaml"
    wide = of(verl, f"{base} {name} {micro} {own}actor.strategy=megatron {own}model.lora.rank=16")
    assert not any(path.startswith("roles.reference") for path in (*wide.given, *wide.filled))


def test_the_critic_has_keys_of_its_own() -> None:
    base, own = "python -m verl.trainer.main_ppo algorithm.adv_estimator=gae", "actor_rollout_ref."
    micro = f"{own}model.path=m {own}actor.ppo_micro_batch_size_per_gpu=2 critic.ppo_micro_batch_size_per_gpu=4"
    alone = of(verl, f"{base} {micro} critic.optim.lr=1e-5 critic.model.fsdp_config.param_offload=False")
    assert [path for path in alone.given if path.startswith("roles.critic")] == [
        "roles.critic.placement", "roles.critic.batch.micro_batch"
    ]  # fmt: skip
    assert not alone.uncounted
    spread = f"{base} {micro} {own}actor.ulysses_sequence_parallel_size=2"
    assert of(verl, spread).given["roles.critic.parallel.cp"].value == 1  # its own degree, which is not said
    assert of(verl, f"{spread} critic.ulysses_sequence_parallel_size=4").given["roles.critic.parallel.cp"].value == 4
    more = (
        "critic.model.enable_gradient_checkpointing=False critic.model.lora_rank=8 critic.model.path=n "
        "critic.model.fsdp_config.param_offload=True critic.model.fsdp_config.optimizer_offload=True "
        "reward_model.enable=True reward_model.model.path=r reward_model.micro_batch_size_per_gpu=32 "
        "reward_model.model.fsdp_config.param_offload=True"
    )
    said = {path: one.value for path, one in of(verl, f"{base} {micro} {more}").given.items()}
    assert said["roles.critic.stack.recompute"] == {"kind": "none"}
    assert said["roles.critic.adapter"] == {"kind": "lora", "r": 8, "targets": "all-linear"}
    assert (said["roles.critic.states.idle"], said["roles.reward.states.idle"]) == ("offloaded", "offloaded")
    assert said["roles.reward.forward_batch"] == 32
    never = of(verl, f"{base} {micro} {own}model.enable_gradient_checkpointing=False").given
    assert never["roles.critic.stack.recompute"].value == {"kind": "full", "reentrant": False}


@pytest.mark.parametrize(
    ("more", "task", "critic"),
    [
        ("", "ppo", "p"),
        ("--reward.model_name_or_path r,s", "ppo", "r"),
        ("--reward.model_name_or_path r --critic.model_name_or_path c", "ppo", "c"),
        ("--reward.model_name_or_path r --reward.remote_url http://host", "ppo", "p"),
        ("--algo.advantage.estimator reinforce --critic.model_name_or_path c", "grpo", None),
        ("--algo.advantage.estimator rloo", "grpo", None),
    ],
)
def test_a_critic_is_there_where_values_are_read(more: str, task: str, critic: str | None) -> None:
    """By default they are, and its model is the reward model's, or the policy's."""
    base = "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path p --train.micro_batch_size 2"
    found = of(openrlhf, f"{base} {more}").given
    assert found["task"].value == task
    assert (found["roles.critic.model"].value if "roles.critic.model" in found else None) == critic


def test_a_run_that_shards_names_its_ranks() -> None:
    """One rank was taken where no file said how many."""
    base = "--pretrain gpt2 --zero_stage 3"
    (asked,) = of(openrlhf, f"deepspeed --module openrlhf.cli.train_sft {base}").problems
    assert (asked.path, asked.found) == ("parallel.world", "missing")
    assert (
        of(openrlhf, f"deepspeed --num_gpus 4 --module openrlhf.cli.train_sft {base}").given["parallel.world"].value
        == 4
    )
    ray = of(openrlhf, f"python3 -m openrlhf.cli.train_ppo_ray {base} --actor_num_nodes 2")
    assert ray.filled["parallel.world"].value == 16
    (asked,) = of(
        verl, "torchrun --nproc_per_node=$N -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=m"
    ).problems
    assert asked.found == "$N is known on the machine only"
    policy = "actor_rollout_ref.model.path=m actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 trainer.nnodes=2"
    assert of(verl, f"python -m verl.trainer.main_ppo {policy}").filled["parallel.world"].value == 16


def test_an_estimator_that_verl_does_not_have_is_named() -> None:
    base = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=m algorithm.adv_estimator"
    named = [(one.path, one.near) for one in of(verl, f"{base}=gpro").unknown]
    assert named == [("algorithm.adv_estimator=gpro", "grpo")]
    assert of(verl, f"{base}=rloo").unknown == []
