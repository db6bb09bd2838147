"""Roles and phases: who lies on a device when, what leaves it, which phase is the worst, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.acting import PhaseRow, rows_of
from trainledger.answer.disk import beside
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.timeline import timeline
from trainledger.answer.traffic import resident
from trainledger.base.problems import InputError
from trainledger.facts.kernels import CUBLAS
from trainledger.lines.line import Account, Duty, Line, Place
from trainledger.model.build import build
from trainledger.model.counts import total
from trainledger.model.valued import valued
from trainledger.plan.degrees import degrees
from trainledger.plan.roles import role_plan

TRL = {"versions": {"torch": "2.14.1", "transformers": "5.24.0", "trl": "1.16.0", "accelerate": "1.15.0"},
       "loss": "fused-linear"}  # fmt: skip
VERL = {"framework": "verl", "loss": "full", "attention": "flash"}
ENGINE: dict[str, Any] = {"engine": {"tokens": 4096}}
SLEEPING = {"engine": {"tokens": 4096, "sleep_level": 2}}
COUNT = total(build(LLAMA))
WORKSPACES = 2 * CUBLAS.default  # of two threads, which stay


def made(roles: dict[str, Any], task: str = "grpo", stack: dict[str, Any] | None = None, **sections: Any) -> Estimate:
    return estimate(plan_of(task=task, roles=roles, stack=stack or TRL, **sections))


def row(found: Estimate, phase: str) -> PhaseRow:
    return next(one for one in rows_of(found.plan, found.groups) if one.phase == phase)


def held(found: Estimate, phase: str, role: str) -> int:
    return next(one.bytes for one in row(found, phase).shares if one.role == role)


def hosted(found: Estimate, word: str) -> int:
    return sum(line.unit * copies for line, copies in found.ledger.host if word in line.name)


def test_phases_come_in_order_and_one_is_the_worst() -> None:
    found = made({"reference": {}, "rollout": ENGINE})
    rows = rows_of(found.plan, found.groups)
    assert [one.phase for one in rows] == ["sync", "rollout", "log-probs", "reference", "training"]
    assert sum(one.worst for one in rows) == 1
    assert max(rows, key=lambda one: one.allocated).worst
    assert all(sum(share.bytes for share in one.shares) <= one.allocated for one in rows)


def test_a_frozen_role_holds_its_weights_and_no_more() -> None:
    found = made({"reference": {}, "rollout": ENGINE})
    assert held(found, "rollout", "reference") == pytest.approx(2 * COUNT, rel=0.01)
    wide = made({"reference": {"precision": {"weights": "fp32"}}, "rollout": ENGINE})
    assert held(wide, "rollout", "reference") == pytest.approx(4 * COUNT, rel=0.01)


@pytest.mark.parametrize(("level", "kept"), [(1, True), (2, False)])
def test_an_engine_asleep_is_off_the_device(level: int, kept: bool) -> None:
    found = made({"rollout": {"engine": {"tokens": 4096, "sleep_level": level}}})
    assert held(found, "training", "rollout") == 0
    assert held(found, "log-probs", "rollout") == 0
    weights = hosted(found, "rollout: ")
    assert weights == (pytest.approx(2 * COUNT, rel=0.01) if kept else 0)
    assert held(found, "sync", "rollout") == pytest.approx(2 * COUNT, rel=0.01)  # no cache yet
    assert held(found, "rollout", "rollout") > held(found, "sync", "rollout")


def test_an_engine_awake_stays() -> None:
    found = made({"rollout": ENGINE})
    assert held(found, "training", "rollout") == held(found, "rollout", "rollout")


def test_the_cache_is_of_so_many_tokens_or_what_the_share_leaves() -> None:
    heads = LLAMA["num_key_value_heads"] * LLAMA["hidden_size"] // LLAMA["num_attention_heads"]
    token = LLAMA["num_hidden_layers"] * 2 * heads * 2
    by_tokens = made({"rollout": {"engine": {"tokens": 4090}}})
    cache = [one.unit for one in by_tokens.ledger.lines if one.account is Account.CACHE]
    assert cache == [4096 * token]  # whole pages of 16
    narrow = made({"rollout": {"engine": {"tokens": 4096, "cache_dtype": "fp8"}}})
    assert [one.unit for one in narrow.ledger.lines if one.account is Account.CACHE] == [2048 * token]
    device = {"name": "mine", "memory": 10**9}
    shared = made({"rollout": {"engine": {"memory_share": 0.25}}}, device=device)
    assert 0 <= 0.25 * 10**9 - held(shared, "rollout", "rollout") < 16 * token  # less than a page is left


def test_sequences_of_the_batchs_length_fill_the_cache() -> None:
    one, two = (made({"rollout": {"engine": {"sequences": count}}}) for count in (1, 2))
    weights = held(one, "sync", "rollout") - next(each.unit for each in one.ledger.lines if "in pages" in each.name)
    sizes = [held(each, "rollout", "rollout") - weights for each in (one, two)]
    assert sizes[1] == 2 * sizes[0]


def test_moving_states_between_places_conserves_their_bytes() -> None:
    stays, leaves = (
        made({"reference": {"states": {"idle": state}}, "rollout": ENGINE}) for state in ("resident", "offloaded")
    )
    moved = held(stays, "training", "reference") - held(leaves, "training", "reference")
    assert moved == hosted(leaves, "reference: ") > 0
    assert held(stays, "reference", "reference") == held(leaves, "reference", "reference")
    assert all(line.place is Place.HOST for line, _ in leaves.ledger.host)


def test_the_policys_own_states_can_leave_for_the_rollout() -> None:
    found = made({"policy": {"states": {"rollout": "offloaded"}}, "rollout": ENGINE})
    states = 2 * COUNT + 4 * COUNT  # weights and both moments in 16 bits
    assert held(found, "rollout", "policy") == pytest.approx(WORKSPACES, rel=0.01)
    assert held(found, "log-probs", "policy") >= states + WORKSPACES
    assert hosted(found, "") == pytest.approx(states, rel=0.02)


def test_states_that_left_are_not_there_when_the_step_is_replayed() -> None:
    """No moment holds more than its phase, whose rows are folds of the lines."""
    found = made({"policy": {"states": {"idle": "offloaded"}}, "reference": {}, "rollout": ENGINE})
    for one in rows_of(found.plan, found.groups):
        if one.phase != "training":
            last = next(moment for moment in found.ledger.moments if moment.name == f"step 2: {one.phase}")
            assert last.allocated <= one.allocated * 1.01


def test_for_a_forward_only_weights_come_back() -> None:
    away = {"states": {"idle": "offloaded"}}
    found = made({"policy": away, "rollout": ENGINE})
    stays = made({"rollout": ENGINE})
    moments = 4 * COUNT  # both, in 16 bits
    assert held(stays, "log-probs", "policy") - held(found, "log-probs", "policy") == pytest.approx(moments, rel=0.02)
    assert held(found, "training", "policy") == held(stays, "training", "policy")


def test_an_evaluation_beside_roles_is_no_part_of_building() -> None:
    plain, found = made({"rollout": ENGINE}), made({"rollout": ENGINE}, evaluation={"micro_batch": 8})
    assert [(one.name, one.allocated) for one in found.ledger.moments] == [
        (one.name, one.allocated) for one in plain.ledger.moments
    ]
    assert any(note.startswith("evaluation: beside roles") for note in found.notes.uncounted)


def test_a_critic_is_trained_beside_the_policy() -> None:
    found = made({"reference": {}, "critic": {}, "reward": {}, "rollout": ENGINE}, "ppo", VERL)
    rows = [one.phase for one in rows_of(found.plan, found.groups)]
    assert rows == ["sync", "rollout", "rewards", "log-probs", "reference", "values", "critic training", "training"]
    names = [one.name for one in found.ledger.moments]
    assert "step 2: critic optimizer" in names
    states = 6 * total(valued(build(LLAMA)))
    assert held(found, "rollout", "critic") - WORKSPACES == pytest.approx(states, rel=0.02)


def test_every_line_says_whose_it_is() -> None:
    """Names begin with a role's name, too, so that two models' lines can be told apart by a reader."""
    found = made({"reference": {}, "critic": {}, "reward": {}, "rollout": ENGINE}, "ppo", VERL)
    others = ("reference", "critic", "reward", "rollout")
    lines = [*found.ledger.lines, *(line for line, _ in found.ledger.host)]
    assert {line.role for line in lines} == {"policy", *others}
    for line in lines:
        begins = next((name for name in others if line.name.startswith(f"{name}: ")), "policy")
        assert line.role == begins


def test_an_update_reads_nothing_of_other_roles_nor_of_what_waits() -> None:
    alone = resident(made({"rollout": ENGINE}, "ppo", VERL).ledger)
    roles = {"policy": {"states": {"idle": "offloaded"}}, "reference": {}, "critic": {}, "rollout": ENGINE}
    beside_it = made(roles, "ppo", VERL).ledger
    assert any(line.use.duty is Duty.PARKED for line, _ in beside_it.host)
    assert total_of(resident(beside_it)) == total_of(alone)


def total_of(lines: Iterable[tuple[Line, int]]) -> int:
    return sum(line.unit * copies for line, copies in lines if line.account in (Account.WEIGHTS, Account.OPTIMIZER))


def test_a_role_apart_has_devices_of_its_own() -> None:
    found = made({"reference": {"placement": 2}, "rollout": SLEEPING})
    assert [(one.name, one.devices) for one in found.groups] == [("policy, rollout", 1), ("reference", 2)]
    assert not any(line.name.startswith("reference: ") for line in found.ledger.lines)
    small = {"name": "mine", "memory": 4 * 10**6}
    small_names = [line.name for line in found.groups[1].ledger.lines]
    assert any(name.startswith("reference: ") for name in small_names)
    tight = made({"reference": {"placement": 1}, "rollout": {**SLEEPING, "placement": 1}}, device=small)
    assert tight.verdict.outcome == "does-not-fit"


def test_an_engine_apart_is_sent_weights_that_are_gathered_here() -> None:
    roles: dict[str, Any] = {"rollout": {**ENGINE, "placement": 2}}
    found = made(roles, parallel={"strategy": "fsdp2", "dp": 4}, precision={"reduce": "bf16"})
    largest = 2 * LLAMA["vocab_size"] * LLAMA["hidden_size"]
    assert next(one.phase for one in rows_of(found.plan, found.groups) if one.group == "policy") == "sync"
    assert held(found, "sync", "policy") - held(found, "log-probs", "policy") < largest
    assert [line.unit for line in found.ledger.lines if line.account is Account.SYNC] == [largest]
    apart = [one.phase for one in rows_of(found.plan, found.groups) if one.group == "rollout"]
    assert apart == ["sync", "rollout"]


def test_a_larger_forward_batch_is_its_roles_alone() -> None:
    few, many = (made({"reference": {"forward_batch": count}, "rollout": ENGINE}) for count in (1, 8))
    assert held(many, "reference", "reference") > held(few, "reference", "reference")
    assert held(many, "training", "policy") == held(few, "training", "policy")


def test_weights_are_gathered_and_cast_for_the_engine() -> None:
    parallel = {"strategy": "fsdp2", "dp": 4}
    largest = LLAMA["vocab_size"] * LLAMA["hidden_size"]
    found = made({"rollout": {**ENGINE, "precision": {"weights": "fp8"}}}, parallel=parallel,
                 precision={"weights": "fp32", "gradients": "fp32", "reduce": "fp32"}, stack=VERL)  # fmt: skip
    sizes = [line.unit for line in found.ledger.lines if line.account is Account.SYNC]
    assert sizes == [4 * largest, 2 * largest]  # gathered in fp32; the embedding stays in 16 bits
    whole = made({"rollout": ENGINE})
    assert not [line for line in whole.ledger.lines if line.account is Account.SYNC]


def test_without_an_engine_the_policy_generates_itself() -> None:
    found = made({"policy": {"forward_batch": 2}})
    assert [one.phase for one in rows_of(found.plan, found.groups)] == ["rollout", "log-probs", "training"]
    heads = LLAMA["num_key_value_heads"] * LLAMA["hidden_size"] // LLAMA["num_attention_heads"]
    layer = 2 * 512 * heads * 2  # keys of both sequences, in 16 bits
    cache = [(line.unit, line.account) for line in found.ledger.lines if line.account is Account.CACHE]
    assert cache == [(layer, Account.CACHE)] * 2
    idle = held(found, "rollout", "policy") - (2 * LLAMA["num_hidden_layers"] + 1) * layer
    assert idle == pytest.approx(WORKSPACES + 6 * COUNT, rel=0.01)
    spread = made({"policy": {}}, parallel={"strategy": "zero3", "dp": 4}, precision={"master": "fp32"})
    assert held(spread, "rollout", "policy") > 2 * COUNT + 14 * COUNT / 4  # all weights beside the states' parts


def test_the_timeline_has_the_phases() -> None:
    roles: dict[str, Any] = {"reference": {}, "rollout": SLEEPING}
    ticks = timeline(plan_of(task="grpo", roles=roles, stack=TRL)).ticks
    names = [tick.name for tick in ticks]
    assert names.index("step 1: rollout") < names.index("step 1: reference") < names.index("step 1: forward")
    assert all(0 <= tick.after <= tick.most for tick in ticks)


def test_an_engine_over_ranks_holds_a_part() -> None:
    parallel = {"strategy": "fsdp2", "dp": 4}
    one, two = (
        made({"rollout": {**SLEEPING, "parallel": {"tp": tp}}}, parallel=parallel, precision={"reduce": "bf16"})
        for tp in (1, 2)
    )
    assert held(two, "sync", "rollout") == pytest.approx(held(one, "sync", "rollout") / 2, rel=0.15)


def test_a_roles_plan_is_the_runs_with_its_own_keys_over_it() -> None:
    plan = plan_of(task="grpo", stack=TRL, parallel={"strategy": "fsdp2", "dp": 4}, precision={"reduce": "bf16"},
                   adapter={"kind": "lora", "r": 8, "targets": ["q_proj"]},
                   roles={"reference": {"parallel": {"tp": 2}}, "rollout": ENGINE})  # fmt: skip
    own = role_plan(plan, "reference")
    assert (own.parallel.tp, own.parallel.strategy, own.adapter) == (2, "fsdp2", None)
    assert role_plan(plan, "policy").adapter is not None


@pytest.mark.parametrize(
    ("sections", "path"),
    [
        ({"task": "grpo"}, "roles"),
        ({"task": "sft", "roles": {"reference": {}}}, "roles"),
        ({"roles": {"rollout": {}}}, "roles.rollout.engine"),
        ({"roles": {"rollout": {"engine": {"memory_share": 0.5}}}, "device": None},
         "roles.rollout.engine.memory_share"),
        ({"roles": {"rollout": ENGINE, "reference": {"engine": {"tokens": 1}}}}, "roles.reference.engine"),
        ({"roles": {"policy": {"batch": {"micro_batch": 2}}, "rollout": ENGINE}}, "roles.policy"),
        ({"roles": {"rollout": ENGINE, "reference": {"states": {"rolout": "asleep"}}}},
         "roles.reference.states.rolout"),
        ({"roles": {"reference": {"parallel": {"strategy": "fsdp1-noshard"}}},
          "parallel": {"strategy": "ddp", "dp": 2}}, "roles.reference.parallel.strategy"),
        ({"roles": {"reference": {}, "critic": {}}}, "roles.critic"),
        ({"roles": {"critic": {"placement": 1}}}, "roles.critic"),
        ({"roles": {"policy": {"placement": 8}}}, "roles.policy.placement"),
    ],
)  # fmt: skip
def test_what_is_refused_by_name(sections: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        estimate(plan_of(**{"task": "grpo", "stack": TRL, **sections}))
    assert path in [one.path for one in caught.value.problems]


@pytest.mark.parametrize(
    ("roles", "path"),
    [
        ({"reference": {"parallel": {"strategy": "zero9"}}}, "roles.reference.parallel.strategy"),
        ({"judge": {}}, "roles.judge"),
        ({"rollout": {"engine": {"sleep_level": 3}}}, "roles.rollout.engine.sleep_level"),
        ({"reference": {"placement": "elsewhere"}}, "roles.reference.placement"),
        ({"reference": {"model": "no-such-model"}}, "roles.reference.model"),
    ],
)
def test_what_a_plan_cannot_say(roles: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        plan_of(task="grpo", roles=roles)
    assert path in [one.path for one in caught.value.problems]


PPO: dict[str, Any] = {"critic": {}, "reference": {}, "rollout": ENGINE}
EIGHT = {"strategy": "fsdp2", "dp": 8}


@pytest.mark.parametrize("states", [{}, {"states": {"rollout": "offloaded"}}])
def test_an_update_moves_the_states_of_the_model_that_it_updates(states: dict[str, Any]) -> None:
    """Not a critic's, nor what waits in the host's memory between phases; a checkpoint holds no state twice."""
    alone = beside(made({"rollout": ENGINE}, stack=VERL, parallel=EIGHT))
    roles = {**PPO, "critic": states, "policy": states}
    found = beside(made(roles, "ppo", VERL, parallel=EIGHT))
    assert found.traffic == alone.traffic
    files = [one for one in found.checkpoint.files if not one.name.startswith("critic: ")]
    assert tuple(files) == alone.checkpoint.files


def test_a_critic_is_saved_beside_the_policy() -> None:
    found = beside(made(PPO, "ppo", VERL, parallel=EIGHT)).checkpoint
    own = sum(one.total for one in found.files if not one.name.startswith("critic: "))
    assert found.total - own == pytest.approx(6 * total(valued(build(LLAMA))), rel=0.01)


def test_models_of_roles_are_gathered_one_after_the_other_to_be_saved() -> None:
    save = {"format": "fsdp-full"}
    alone = made({"rollout": ENGINE}, "grpo", VERL, parallel=EIGHT, save=save)
    both = made(PPO, "ppo", VERL, parallel=EIGHT, save=save)
    whole = [
        next(part.size.expected for part in one.parts if part.name.startswith("whole state dict"))
        for answer in (alone, both)
        for one in beside(answer).host
        if one.name == "save"
    ]
    assert whole[0] == whole[1] > 0


def test_a_critic_with_a_degree_of_its_own_lies_on_all_of_the_plan_s_devices() -> None:
    """Said as dp or as world, the plan's ranks are as many."""
    roles = {"critic": {"parallel": {"strategy": "hsdp", "shard": 4}}, "rollout": ENGINE}
    plans = [made(roles, "ppo", VERL, parallel=given).plan for given in (EIGHT, {"strategy": "fsdp2", "world": 8})]
    assert [degrees(role_plan(plan, "critic")).world for plan in plans] == [8, 8]
    assert [degrees(role_plan(plan, "critic")).shard for plan in plans] == [4, 4]


@pytest.mark.parametrize(
    ("roles", "path", "fix"),
    [
        ({"rollout": {"engine": {"memory_share": 0}}}, "roles.rollout.engine.memory_share", "Set it above 0.0"),
        ({"rollout": {"engine": {"memory_share": 0.5, "tokens": 64}}}, "roles.rollout.engine", "Leave the others out."),
        (
            {"rollout": ENGINE, "critic": {"placement": 2, "parallel": {"dp": 4}}},
            "roles.critic.placement",
            "Leave the role's degrees out.",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(roles: dict[str, Any], path: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        made(roles, "ppo", VERL, parallel=EIGHT)
    assert caught.value.problems[0].path == path
    assert caught.value.problems[0].fix.startswith(fix)


@pytest.mark.parametrize(("share", "outcome"), [(0.9, "fits"), (1.0, "does-not-fit")])
def test_an_engine_s_share_of_its_own_device_has_its_context_in_it(share: float, outcome: str) -> None:
    """What vLLM takes by default, 0.9, is the whole engine's; only what an update brings comes beside."""
    roles = {"rollout": {"placement": 2, "engine": {"memory_share": share}}}
    found = made(roles, stack=VERL, parallel=EIGHT)
    assert found.verdict.outcome == outcome


@pytest.mark.parametrize(
    ("trl", "options", "sequences"),
    [("1.16.0", {}, 4), ("1.16.0", {"steps_per_generation": 8}, 8), ("0.17.0", {}, 4), ("0.16.1", {}, 1)],
)
def test_trl_samples_and_scores_the_sequences_of_several_micro_batches(
    trl: str, options: dict[str, object], sequences: int
) -> None:
    """Those of the step where nothing else is said; each is a micro-batch here."""
    versions = {**TRL["versions"], "trl": trl} if isinstance(TRL["versions"], dict) else {}
    loss = "fused-linear" if trl == "1.16.0" else "full-fp32"
    found, one = (
        made({"reward": {}}, stack={"versions": versions, "loss": loss, "options": more}, batch={"accumulation": 4})
        for more in (options, {"steps_per_generation": 1})
    )
    caches = [sum(line.unit for line in made.ledger.lines if line.account is Account.CACHE) for made in (found, one)]
    assert caches[0] == sequences * caches[1]
    rewards = [row(made, "rewards").allocated for made in (found, one)]
    assert (rewards[0] > rewards[1]) == (sequences > 1)


@pytest.mark.parametrize(
    "keys", [{"precision": None, "stack": None, "optimizer": None, "offload": None}, {"stack": {"recompute": None}}]
)
def test_a_roles_null_is_a_key_left_out(keys: dict[str, Any]) -> None:
    given, plain = (made({"critic": critic, "rollout": ENGINE}, "ppo", VERL) for critic in (keys, {}))
    assert given.peak == plain.peak
