"""Who acts beside the policy in TRL's GRPO and RLOO: a reference if asked for, a reward model, vLLM colocated or as a
server; and how long sampled sequences are."""

from __future__ import annotations

from trainledger.facts.import_hf_filled import RLOO_BETA, TRL_COMPLETION, TRL_PROMPT, TRL_UNCUT, filled
from trainledger.facts.import_hf_trl import RLOO, RLOO_SINCE, VLLM_COLOCATED, VLLM_SERVER, VLLM_SHARE, VLLM_SLEEP
from trainledger.facts.option_row import Direction
from trainledger.facts.versions import at_least
from trainledger.importers.arguments import Arguments
from trainledger.importers.draft import Uncounted
from trainledger.importers.piece import Given

DEFAULT = "default: "  # how the place of a value begins that no file gives
COLOCATE, SERVER = "colocate", "server"
SORT = f"_{RLOO[0]}"  # handed on where a script of that name runs
PROMPT, COMPLETION = "max_prompt_length", "max_completion_length"
REWARDS = "reward_model_name_or_path"  # a model that scores completions, on every device beside the policy
TEACHES = "teacher_model_name_or_path"  # GKD's frozen model, beside the trained one
LOSS_TYPE = "run.loss_type"  # the fact which loss the arguments name first
REFERENCED = (
    "run.reference"  # the fact whether a reference is read; it is a model of its own where no adapter is trained
)


def grpo_roles(given: Arguments, release: str | None) -> None:
    """Give the roles, a reward model among them, whether a reference is read, and the tokens of completions: no others
    count. `release`: of TRL (None: the newest). A server's devices are not said."""
    piece = given.piece
    if given.flag(SORT) and not at_least(release, RLOO_SINCE):
        allowed = f"RLOO of TRL {RLOO_SINCE} and later can be read"
        piece.refuse("task", f"found {SORT[1:]!r}", allowed, where=given.where(SORT))
    _lengths(given, release)
    piece.give("roles.policy.placement", "colocated", given.where("num_generations"))
    if model := given.text(REWARDS):
        piece.give("roles.reward.model", model, given.where(REWARDS))
    beta, forced = given.number("beta"), bool(given.flag("force_use_ref_model"))
    if beta is not None or forced:
        piece.facts[REFERENCED] = Given(forced or bool(beta), given.where("beta", "force_use_ref_model"))
    elif given.flag(SORT):
        piece.facts[REFERENCED] = Given(True, f"{DEFAULT}{RLOO_BETA.why}", RLOO_BETA.source)
    if not given.flag("use_vllm"):
        return
    default = COLOCATE if at_least(release, VLLM_COLOCATED) else SERVER
    if (given.text("vllm_mode") or default) != COLOCATE:
        piece.fill(VLLM_SERVER.path, VLLM_SERVER.value, VLLM_SERVER.why, VLLM_SERVER.source)
        return
    share, tp = given.number("vllm_gpu_memory_utilization"), given.whole("vllm_tensor_parallel_size", least=1)
    if share is not None:
        piece.give("roles.rollout.engine.memory_share", share, given.where("vllm_gpu_memory_utilization"))
    piece.fill(VLLM_SHARE.path, VLLM_SHARE.value, VLLM_SHARE.why, VLLM_SHARE.source)
    if tp is not None:
        piece.give("roles.rollout.parallel.tp", tp, given.where("vllm_tensor_parallel_size"))
    if given.flag("vllm_enable_sleep_mode"):
        piece.give("roles.rollout.engine.sleep_level", VLLM_SLEEP, given.where("vllm_enable_sleep_mode"))


def _lengths(given: Arguments, release: str | None) -> None:
    """A prompt and the completion after it, which alone counts: as said, else TRL's own lengths. Where prompts are not
    cut, how long they are is in the data."""
    piece, prompt, counted = given.piece, given.whole(PROMPT, least=1), given.whole(COMPLETION, least=1)
    length = piece.given.get("batch.sequence") or piece.filled.get("batch.sequence")
    if length is not None:
        if counted and isinstance(length.value, int) and counted <= length.value:
            piece.give("batch.loss_tokens", counted, given.where(COMPLETION))
        return
    (ahead,), (after,) = filled(TRL_PROMPT, release), filled(TRL_COMPLETION, release)
    said = [name for name, value in ((COMPLETION, counted), (PROMPT, prompt)) if value]
    total = int(str(prompt or ahead.value)) + int(str(counted or after.value))
    if said:
        piece.give("batch.sequence", total, given.where(*said))
    else:
        piece.fill("batch.sequence", total, ahead.why, ahead.source)
    if counted:
        piece.give("batch.loss_tokens", counted, given.where(COMPLETION))
    else:
        piece.fill(after.path, after.value, after.why, after.source)
    if not prompt and at_least(release, TRL_UNCUT):
        piece.uncounted.append(Uncounted(f"{PROMPT} (prompts are not cut)", piece.name, Direction.EITHER.value))
