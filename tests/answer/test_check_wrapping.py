"""What is refused of wrapping by size, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.check import check
from trainledger.answer.estimate import estimate
from trainledger.answer.notes import notes_of
from trainledger.base.problems import InputError
from trainledger.model.build import model_of

POLICY, LEAST = "parallel.options.auto_wrap_policy", "parallel.options.min_num_params"
NEW = {"versions": {"torch": "2.13.0", "transformers": "5.24.0", "accelerate": "1.15.0"}}
LORA = {"kind": "lora", "r": 4, "targets": ["q_proj"], "dtype": "fp32"}
GPT_NEOX = {
    "model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
    "intermediate_size": 160, "tie_word_embeddings": False,
}  # fmt: skip


def by_size(least: int | None, strategy: str = "fsdp1") -> dict[str, Any]:
    options = {"auto_wrap_policy": "SIZE_BASED_WRAP"} | ({} if least is None else {"min_num_params": least})
    return {"strategy": strategy, "dp": 2, "options": options}


def problems(model: dict[str, Any] = LLAMA, **sections: Any) -> list[str]:
    with pytest.raises(InputError) as found:
        estimate(plan_of(model, **sections))
    return [problem.path for problem in found.value.problems]


@pytest.mark.parametrize(
    "sections",
    [
        {"parallel": by_size(100_000, "fsdp2")},
        {"adapter": LORA},
        {"trainable": ["self_attn"]},
        {"stack": {"recompute": {"kind": "full", "reentrant": True}}},
        {"stack": {"recompute": {"kind": "selective", "modules": ["mlp"]}}},
        {"stack": {"framework": "litgpt"}},
    ],
)
def test_what_the_walk_cannot_follow_is_refused(sections: dict[str, Any]) -> None:
    assert POLICY in problems(**{"parallel": by_size(100_000), **sections})


def test_units_whose_weights_others_read_are_refused() -> None:
    assert problems({**LLAMA, "tie_word_embeddings": True}, parallel=by_size(200_000)) == [LEAST]
    assert problems(parallel=by_size(200_000), stack={"loss": "fused-linear", "kernels": ["liger"]}) == [LEAST]


def test_norms_that_autocast_leaves_in_fp32_are_refused_inside_layers() -> None:
    precision = {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32", "reduce": "fp32"}
    assert problems(GPT_NEOX, parallel=by_size(10_000), precision=precision) == [LEAST]
    check(plan_of(GPT_NEOX, parallel=by_size(10_000)))
    estimate(plan_of(GPT_NEOX, parallel=by_size(40_000), precision=precision))  # whole layers


def test_without_a_size_torch_has_its_own_and_accelerate_wraps_nothing() -> None:
    assert problems(parallel=by_size(0)) == [LEAST]
    plan = plan_of(parallel=by_size(None), stack=NEW)
    none = plan_of(parallel={**by_size(None), "options": {"auto_wrap_policy": "NO_WRAP"}}, stack=NEW)
    assert estimate(plan).steps == estimate(none).steps
    assert any(
        "SIZE_BASED_WRAP makes the model one unit" in one for one in notes_of(plan, model_of(plan), None).warnings
    )


def test_a_size_that_wraps_little_is_warned_of() -> None:
    def said(least: int) -> list[str]:
        plan = plan_of(parallel=by_size(least))
        return [one for one in notes_of(plan, model_of(plan), None).warnings if one.startswith(LEAST)]

    assert not said(100_000)
    assert "the root is a unit of" in said(10**9)[0]
    assert "model is a unit of" in said(1_000_000)[0]


def test_a_size_without_the_policy_is_told() -> None:
    plan = plan_of(parallel={"strategy": "fsdp1", "dp": 2, "options": {"min_num_params": 2_000}})
    assert any(one.startswith(f"{LEAST}: only") for one in notes_of(plan, model_of(plan), None).warnings)


@pytest.mark.parametrize("policy", ["SIZE_BASED_WRAP", "NO_WRAP"])
def test_under_the_trainer_an_adapter_has_pefts_own_policy(policy: str) -> None:
    options = {"auto_wrap_policy": policy, "min_num_params": 100_000}
    plan = plan_of(parallel={**by_size(None), "options": options}, stack=NEW, adapter=LORA)
    layers = plan_of(parallel={**by_size(None), "options": {}}, stack=NEW, adapter=LORA)
    assert estimate(plan).steps == estimate(layers).steps
    (said,) = (one for one in notes_of(plan, model_of(plan), None).warnings if "PEFT" in one)
    assert policy in said


def test_fsdp2_refuses_the_list_of_layers() -> None:
    """As accelerate's own policy meets PyTorch's own check."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("accelerate")
    from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
    from accelerate.utils.other import get_module_children_bottom_up
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

    layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(2)])
    plugin = SimpleNamespace(auto_wrap_policy=size_based_auto_wrap_policy, min_num_params=100)
    policy = fsdp2_prepare_auto_wrap_policy(plugin, layers)
    model = torch.nn.Sequential(layers, torch.nn.Linear(8, 8))
    chosen = [module for module in get_module_children_bottom_up(model)[:-1] if policy(module)]
    assert chosen == [layers]
    with pytest.raises(ValueError, match="containers that do not implement forward"):
        fully_shard(chosen[0])
