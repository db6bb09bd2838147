"""Reinforcement learning in phases: which role does what in each, and what a rollout engine holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.colossal import LOW_LEVEL

POLICY, REFERENCE, CRITIC, REWARD, ROLLOUT = "policy", "reference", "critic", "reward", "rollout"
TEACHER, DISTILL = "teacher", "distill"  # the role of a task that has no phases
ROLES = (POLICY, REFERENCE, CRITIC, REWARD, ROLLOUT)
TRAINED = (POLICY, CRITIC)  # roles with an optimizer
VALUED = (CRITIC, REWARD)  # roles whose head makes one number of each token


class Deed(StrEnum):
    """What a role does in a phase."""

    SYNC = "sync"
    GENERATE = "generate"
    FORWARD = "forward"
    TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of an iteration: its name, the role that acts, and what it does."""

    name: str
    role: str
    deed: Deed


_SYNC = Phase("sync", ROLLOUT, Deed.SYNC)
_ROLLOUT = Phase("rollout", ROLLOUT, Deed.GENERATE)
_OWN = Phase("rollout", POLICY, Deed.GENERATE)  # by the policy itself, where there is no engine
_REWARDS = Phase("rewards", REWARD, Deed.FORWARD)
_LOG_PROBS = Phase("log-probs", POLICY, Deed.FORWARD)
_REFERENCE = Phase("reference", REFERENCE, Deed.FORWARD)
_VALUES = Phase("values", CRITIC, Deed.FORWARD)
_TRAINING = Phase("training", POLICY, Deed.TRAIN)
_CRITIC = Phase("critic training", CRITIC, Deed.TRAIN)


@dataclass(frozen=True, slots=True)
class Iteration:
    """The phases of a task's iteration, in order; a phase whose role a plan does not have falls out.

    `framework`: whose own it is (empty: that of all others). `together`: both trained roles run forward and backward
    before either steps, in one function, which names logits to its end; so does the one that makes experience.
    `caches`: copies of keys and values while the policy generates (0: of one layer twice)."""

    task: str
    phases: tuple[Phase, ...]
    source: Source
    framework: str = ""
    together: bool = False
    caches: int = 0


CHAT_PPO = Iteration(
    "ppo",
    (_OWN, _LOG_PROBS, _REFERENCE, _REWARDS, _VALUES, _TRAINING, _CRITIC),
    Source(
        "ColossalChat PPOTrainer",
        "applications/ColossalChat/coati/trainer/{base,ppo}.py, coati/experience_maker/naive.py, "
        "coati/models/{generation,utils,critic,reward_model}.py, examples/training_scripts/train_ppo.py",
        "d888c3787 (2024-07)",
    ),
    LOW_LEVEL.framework,
    together=True,
    caches=2,
)
ITERATIONS: tuple[Iteration, ...] = (
    Iteration(
        "grpo",
        (_SYNC, _ROLLOUT, _OWN, _REWARDS, _LOG_PROBS, _REFERENCE, _TRAINING),
        Source(
            "TRL GRPOTrainer and verl's RayPPOTrainer",
            "trl/trainer/grpo_trainer.py, _generate_and_score_completions; verl/trainer/ppo/ray_trainer.py, fit",
            "1.16.0; b178a3c, 2026-01",
        ),
    ),
    Iteration(
        "ppo",
        (_SYNC, _ROLLOUT, _OWN, _REWARDS, _LOG_PROBS, _REFERENCE, _VALUES, _CRITIC, _TRAINING),
        Source(
            "verl's RayPPOTrainer and OpenRLHF's PPOTrainer",
            "verl/trainer/ppo/ray_trainer.py, fit; openrlhf/trainer/ppo_trainer.py",
            "b178a3c, 2026-01; 3c3be62, 2026-08",
        ),
    ),
    CHAT_PPO,
)
TASKS = tuple(dict.fromkeys(row.task for row in ITERATIONS))


def iteration_of(task: str, framework: str) -> Iteration | None:
    """The iteration of a task as a framework runs it; None for tasks without."""
    rows = [row for row in ITERATIONS if row.task == task and row.framework in ("", framework)]
    return max(rows, key=lambda row: len(row.framework)) if rows else None


def phases_of(task: str, framework: str, engine: bool) -> tuple[Phase, ...]:
    """The phases of a task's iteration; none for other tasks. `engine`: an engine generates, not the policy itself."""
    row = iteration_of(task, framework)
    found = row.phases if row else ()
    return tuple(one for one in found if one not in ((_OWN,) if engine else (_SYNC, _ROLLOUT)))


@dataclass(frozen=True, slots=True)
class Pages:
    """A rollout engine's cache of keys and values: tokens of a page, and pages beyond a window that a sequence has
    while it slides."""

    tokens: int
    beyond: int
    source: Source


PAGES = Pages(
    16,
    1,
    Source(
        "vLLM paged cache",
        "vllm/config/cache.py, block_size; vllm/v1/kv_cache_interface.py, FullAttentionSpec, SlidingWindowSpec, "
        "MLAAttentionSpec; vllm/config/model.py, verify_with_parallel_config, get_num_kv_heads; "
        "vllm/model_executor/layers/mamba/mamba_utils.py, gated_delta_net_state_shape, gated_delta_net_state_dtype",
        "0.11.0",
    ),
)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a rollout engine does with its memory: the pool of its cache is what its share of the device leaves beside
    its weights and working memory; asleep, level 1 has its weights in the host's memory, level 2 drops them."""

    kept: tuple[int, ...]
    levels: tuple[int, ...]
    source: Source


ENGINE = EngineFacts(
    (1,),
    (1, 2),
    Source(
        "vLLM memory",
        "vllm/v1/worker/gpu_worker.py, determine_available_memory, sleep; vllm/device_allocator/cumem.py",
        "0.11.0",
    ),
)
SCORES = Source(
    "verl's Megatron workers: log-probabilities, entropy and values of logits",
    "verl/workers/actor/megatron_actor.py, logits_processor; workers/critic/megatron_critic.py; "
    "utils/megatron/tensor_parallel.py; megatron/core/transformer/module.py, Float16Module",
    "0.7.0; core 0.14.0",
)
EXPORTED = Source(
    "Weights of Megatron-Core sent to a rollout engine, one by one",
    "verl/utils/megatron_utils.py, per_tensor_generator; mbridge/core/bridge.py, export_weights, "
    "_weight_merge_across_tp",
    "0.7.0; 0.15.1",
)
MOVED = Source(
    "verl's Megatron workers: what leaves a device between phases, and what comes for each",
    "verl/workers/megatron_workers.py; utils/megatron_utils.py, offload_megatron_model_to_cpu, "
    "offload_megatron_optimizer",
    "0.7.0",
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """A package whose trainer samples the sequences of several micro-batches at once, from a release on, and scores
    them by a reward model so: of an optimizer step's, or of as many as its option says."""

    package: str
    since: str
    option: str
    source: Source


SAMPLING = Sampling(
    "trl",
    "0.17",
    "steps_per_generation",
    Source(
        "TRL GRPOTrainer, generation batches",
        "trl/trainer/grpo_trainer.py, get_train_dataloader, _prepare_inputs, _calculate_rewards",
        "0.17.0 to 1.16.0",
    ),
)
GENERATION = Source(
    "Transformers generation",
    "transformers/generation/utils.py, _sample; cache_utils.py, DynamicLayer.update; trl/models/utils.py, "
    "unwrap_model_for_generation",
    "5.24.0; 1.16.0",
)
SYNC = Source(
    "Weight updates of rollout engines",
    "trl/generation/vllm_generation.py, sync_weights; verl/workers/fsdp_workers.py, rollout_mode; "
    "openrlhf/trainer/ray/ppo_actor.py, broadcast_to_vllm",
    "1.16.0; b178a3c, 2026-01; 3c3be62, 2026-08",
)
