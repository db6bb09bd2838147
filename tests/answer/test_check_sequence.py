"""Long sequences: what is refused, by which key, and with which fix."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.check import check, check_model
from trainledger.base.problems import InputError
from trainledger.model.build import model_of

STACK = {"framework": "deepspeed", "versions": {"transformers": "4.51.3"}, "attention": "flash", "recompute": "full"}


def plan(cp: int = 2, **changed: Any) -> Any:
    parallel = {"strategy": "zero3", "dp": 1, "cp": cp, "shard": cp, "options": {"cp_comm_type": "ulysses"}}
    given: dict[str, Any] = {"parallel": parallel, "stack": STACK}
    for name, section in changed.items():
        given[name] = {**given.get(name, {}), **section} if isinstance(section, dict) else section
    return plan_of(given.pop("model", LLAMA), **given)


def problems(given: Any) -> dict[str, str]:
    try:
        check(given)
        check_model(given, model_of(given))
    except InputError as error:
        return {one.path: str(one) for one in error.problems}
    return {}


def test_heads_over_ranks_can_be_estimated() -> None:
    assert problems(plan()) == {}
    assert problems(plan(4)) == {}


@pytest.mark.parametrize(
    ("changed", "path", "fix"),
    [
        ({"batch": {"sequence": 513}}, "batch.sequence", "Did you mean 512?"),
        ({"parallel": {"shard": 1}}, "parallel.shard", "Set it to 2."),
        ({"stack": {"attention": "eager"}}, "stack.attention", "flash or sdpa"),
        ({"parallel": {"options": {"cp_comm_type": "p2p"}}}, "parallel.cp", "only 1"),
        ({"parallel": {"options": {"cp_comm_type": "ulysses", "tiled_mlp": True}},
          "adapter": {"kind": "lora", "r": 4, "targets": ["q_proj"]}}, "parallel.options.tiled_mlp", "an adapter"),
        ({"offload": {"activations": "cpu"}, "stack": {"recompute": "none"}}, "offload.activations", "'cpu'"),
    ],
)  # fmt: skip
def test_what_cannot(changed: dict[str, Any], path: str, fix: str) -> None:
    found = problems(plan(**changed))
    assert fix in found[path]


def test_heads_that_ranks_do_not_divide_get_the_nearest_number() -> None:
    found = problems(plan(3, batch={"sequence": 513}))
    assert "Did you mean 2?" in found["parallel.cp"] or "Did you mean 4?" in found["parallel.cp"]


def test_tiles_need_a_gated_mlp() -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 1024}
    given = plan(model=gpt2, parallel={"cp": 1, "shard": 2, "dp": 2, "options": {"tiled_mlp": True}})
    assert "gpt2" in problems(given)["parallel.options.tiled_mlp"]
