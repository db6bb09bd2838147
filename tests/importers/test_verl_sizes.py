"""verl's sizes of all ranks together become one rank's."""

from __future__ import annotations

import pytest

from trainledger.importers import verl
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.piece import Piece
from trainledger.importers.script import parse_script

ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
BASE = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=m trainer.n_gpus_per_node=8"


def of(text: str) -> Piece:
    return verl.extract(Input("s.sh", "", script=parse_script(text, "s.sh", {})), Context())


def test_sizes_of_all_ranks_are_shared_out() -> None:
    found = of(
        f"{BASE} trainer.nnodes=2 {ACTOR}ppo_micro_batch_size=64 {ROLLOUT}log_prob_micro_batch_size=128 "
        "critic.ppo_micro_batch_size=32 critic.forward_micro_batch_size=64"
    )
    said = {path: one.value for path, one in found.given.items()}
    assert found.problems == []
    assert said["batch.micro_batch"] == 4
    assert found.given["batch.micro_batch"].where.endswith(f"{ACTOR}ppo_micro_batch_size")
    assert said["roles.policy.forward_batch"] == 8
    assert (said["roles.critic.batch.micro_batch"], said["roles.critic.forward_batch"]) == (2, 4)


@pytest.mark.parametrize(
    ("more", "micro"),
    [
        (f"{ACTOR}ulysses_sequence_parallel_size=2", 16),
        (f"{ACTOR}megatron.tensor_model_parallel_size=2 {ACTOR}megatron.pipeline_model_parallel_size=2", 32),
        (f"{ACTOR}ppo_micro_batch_size_per_gpu=3", 3),  # one rank's own word counts
    ],
)
def test_ranks_that_see_the_same_sequences_share_one_part(more: str, micro: int) -> None:
    assert of(f"{BASE} {ACTOR}ppo_micro_batch_size=64 {more}").given["batch.micro_batch"].value == micro


def test_a_size_that_cannot_be_shared_out_is_refused() -> None:
    (few,) = of(f"{BASE} {ACTOR}ppo_micro_batch_size=4").problems
    assert (few.found, few.fix) == ("found '4'", f"Write {ACTOR}ppo_micro_batch_size_per_gpu.")
    (alone,) = of(f"{BASE.rpartition(' ')[0]} {ACTOR}ppo_micro_batch_size=4").problems
    assert alone.fix == "Say trainer.n_gpus_per_node."


def test_a_program_of_the_users_own_that_takes_verls_keys_is_verls() -> None:
    text = f"python -u train.py +model.name=m actor_rollout_ref.model.path=m {ACTOR}ppo_micro_batch_size_per_gpu=2"
    assert verl.identify(Input("s.sh", "", script=parse_script(text, "s.sh", {})))
    assert of(text).given["batch.micro_batch"].value == 2


def test_supervised_training_runs_over_the_ranks_that_are_started() -> None:
    base = "-m verl.trainer.fsdp_sft_trainer model.partial_pretrain=m data.micro_batch_size=16"
    found = of(f"torchrun --nnodes=1 --nproc_per_node=4 {base} trainer.n_gpus_per_node=8")
    assert (found.given["parallel.world"].value, found.given["batch.micro_batch"].value) == (4, 4)
    assert (found.filled["batch.sequence"].value, found.filled["batch.global"].value) == (1024, 256)
    (asked,) = of(f"torchrun --nnodes=1 --nproc_per_node=$N {base}").problems
    assert asked.fix == "Give it with --env N=..."
