"""What is trained by pattern: modules and layers are told apart, and what cannot be so is refused by name."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError
from trainledger.lines.line import Account

VERSIONS = {"torch": "2.8.0", "transformers": "4.56.0", "accelerate": "1.10.0", "deepspeed": "0.17.0"}
FOUR = {**LLAMA, "num_hidden_layers": 4}
STRATEGIES = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp1-noshard", "fsdp2", "hsdp")
STATES = (Account.WEIGHTS, Account.MASTER, Account.OPTIMIZER)


def made(strategy: str, trainable: Any, **sections: Any) -> Estimate:
    parallel = {"strategy": strategy, "dp": 4, "world": 4, **({"shard": 2} if strategy == "hsdp" else {})}
    more = {} if strategy == "none" else {"parallel": {**parallel, **sections.pop("options", {})}}
    return estimate(plan_of(FOUR, trainable=trainable, **more, **{"stack": {"versions": VERSIONS}, **sections}))


def resident(found: Estimate) -> dict[Account, int]:
    """Bytes of model states at the end of the second step."""
    lines, held = found.ledger.lines, dict.fromkeys(STATES, 0)
    for number, copies in next(one for one in found.ledger.moments if one.name == "step 2: optimizer").live:
        if lines[number].account in held:
            held[lines[number].account] += lines[number].unit * copies
    return held


@pytest.mark.parametrize("pattern", ["layers.7", "no_such_module", "layers.[89].*"])
def test_what_means_no_module_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="trainable"):
        estimate(plan_of(trainable=["q_proj", pattern]))


@pytest.mark.parametrize(
    "patterns", [["q_proj"], ["mlp", "lm_head"], ["embed_tokens"], ["input_layernorm"], ["layers.1"], ["model.layers"]]
)
def test_modules_are_told_apart(patterns: list[str]) -> None:
    found = estimate(plan_of(trainable=patterns))
    assert 0 < found.parameters.trainable < found.parameters.total
    trained = [line for line in found.ledger.lines if line.account.value == "gradients"]
    assert trained


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_by_name_is_all(strategy: str) -> None:
    every = [*(f"model.layers.{at}" for at in range(4)), "embed_tokens", "norm", "lm_head"]
    whole, star, one_by_one = (made(strategy, trainable) for trainable in ("all", ["*"], every))
    assert whole.ledger.moments == star.ledger.moments == one_by_one.ledger.moments
    assert whole.parameters == star.parameters == one_by_one.parameters


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_more_layers_never_lower_states_or_the_peak(strategy: str) -> None:
    """And states of what is trained grow with it, layer by layer."""
    found = [made(strategy, [f"model.layers.{3 - at}" for at in range(count)]) for count in range(1, 5)]
    held = [resident(one) for one in found]
    for less, more in pairwise(held):
        assert all(less[account] <= more[account] for account in STATES[1:])
        assert less[Account.OPTIMIZER] < more[Account.OPTIMIZER]
        assert abs(less[Account.WEIGHTS] / more[Account.WEIGHTS] - 1) < 0.01  # ZeRO-3 pads what it partitions
    layer = held[0][Account.OPTIMIZER]
    assert abs(held[3][Account.OPTIMIZER] / (4 * layer) - 1) < 0.01
    peaks = [one.peak.allocated.expected for one in found]
    assert peaks == sorted(peaks)


def test_frozen_layers_below_the_first_trained_one_save_nothing() -> None:
    peaks = [made("none", [f"layers.{at}"]).peak.allocated.expected for at in range(4)]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[0] > peaks[3]


def test_a_flat_unit_is_trained_or_frozen() -> None:
    """FSDP1 refuses others, unless weights keep their names; layers that are trained whole are units of their own."""
    unnamed = {"options": {"options": {"use_orig_params": False}}}
    for patterns in (["mlp"], ["layers.3", "lm_head"]):
        with pytest.raises(InputError, match="use_orig_params"):
            made("fsdp1", patterns, **unnamed)
        made("fsdp1", patterns)
    made("fsdp1", ["layers.3"], **unnamed)
    with pytest.raises(InputError, match="use_orig_params"):
        made("fsdp1", ["layers.3"], options={"options": {"use_orig_params": False, "auto_wrap_policy": "NO_WRAP"}})


def test_what_is_trained_in_fp32() -> None:
    """Its weights, gradients and states are twice as wide; DeepSpeed casts it back; elsewhere it is refused."""
    option = {
        "stack": {"versions": VERSIONS, "options": {"cast_trainable_params_to_fp32": True}},
        "precision": {"gradients": "fp32"},
        "optimizer": {"name": "sgd-momentum"},
    }
    with pytest.raises(InputError, match=r"precision\.gradients"):
        made("none", ["layers.3"], **{**option, "precision": {"gradients": "bf16"}})
    for strategy, times in (("none", 2), ("ddp", 2), ("zero2", 1), ("zero3", 1)):
        plain = made(strategy, ["layers.3"], optimizer={"name": "sgd-momentum"})
        own = {"precision": {"gradients": "fp32" if times > 1 else "bf16"}}
        wide = made(strategy, ["layers.3"], **{**option, **own})
        states = [resident(one)[Account.OPTIMIZER] for one in (plain, wide)]
        assert states[1] == times * states[0]
        if strategy == "none":
            more = [resident(one)[Account.WEIGHTS] for one in (plain, wide)]
            assert more[1] - more[0] == 2 * plain.parameters.trainable
    for strategy, trainable in (("fsdp1", ["layers.3"]), ("fsdp2", ["layers.3"]), ("none", "all")):
        with pytest.raises(InputError, match="cast_trainable_params_to_fp32"):
            made(strategy, trainable, **option)


def test_a_reference_model_is_not_cast() -> None:
    versions = {"torch": "2.13.0", "transformers": "5.24.0", "accelerate": "1.10.0", "trl": "1.6.0"}
    sections = {"task": "dpo", "precision": {"gradients": "fp32", "autocast": True}}
    found = [
        made("none", ["layers.3"], stack={"versions": versions, "options": options}, **sections)
        for options in ({}, {"cast_trainable_params_to_fp32": True})
    ]
    held = [resident(one)[Account.WEIGHTS] for one in found]
    assert held[1] - held[0] == 2 * found[0].parameters.trainable


@pytest.mark.parametrize(
    ("framework", "more"), [("torchtune", {}), ("litgpt", {}), ("megatron", {}), ("torchtitan", {})]
)
def test_frameworks_with_code_of_their_own_are_refused_by_name(framework: str, more: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="trainable"):
        estimate(plan_of(trainable=["layers.1"], stack={"framework": framework, **more}))


@pytest.mark.parametrize(
    "sections",
    [
        {"stack": {"loss": "fused-linear"}},
        {
            "stack": {"framework": "torchtitan", "versions": {"torch": "2.13.0"}},
            "parallel": {"strategy": "fsdp2", "dp": 2, "pp": 2, "schedule": "1f1b"},
            "batch": {"accumulation": 4},
        },
    ],
    ids=["fused", "pipeline"],
)
def test_nothing_trained_has_no_backward(sections: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="found 'none' without an adapter"):
        estimate(plan_of(trainable="none", **sections))
    estimate(plan_of(trainable="none"))


def test_adapters_keep_their_names_in_fsdp1s_flat_parameters() -> None:
    """They cannot be flattened with frozen weights in any other way: states are those of adapters alone."""
    adapter = {"kind": "lora", "r": 4, "targets": ["q_proj"], "dtype": "bf16"}
    plans = [{"strategy": strategy, "dp": 4, "world": 4} for strategy in ("fsdp1", "fsdp2")]
    first, second = (
        resident(estimate(plan_of(FOUR, adapter=adapter, parallel=one)))[Account.OPTIMIZER] for one in plans
    )
    assert second <= first <= 4 * second  # all of them may lie in one rank's part
    with pytest.raises(InputError, match="use_orig_params: found false beside an adapter"):
        estimate(plan_of(FOUR, adapter=adapter, parallel={**plans[0], "options": {"use_orig_params": False}}))
