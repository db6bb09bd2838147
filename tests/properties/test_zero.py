"""What must hold of ZeRO whatever the model, ranks and settings."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import states_of
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.lines.stream import total
from trainledger.model.build import build

MIXED = {"weights": "bf16", "compute": "bf16", "gradients": "bf16", "reduce": "bf16", "master": "fp32"}
QWEN = {**LLAMA, "model_type": "qwen2", "tie_word_embeddings": True, "vocab_size": 1111}
DIVIDED = ("master_weights", "optimizer_states")
ROUNDING = 512 * 4

runs = st.fixed_dictionaries(
    {
        "model": st.sampled_from([LLAMA, QWEN]),
        "accumulation": st.integers(1, 3),
        "recompute": st.sampled_from(
            ["none", {"kind": "full", "reentrant": False}, {"kind": "full", "reentrant": True}]
        ),
        "options": st.fixed_dictionaries(
            {
                "reduce_bucket_size": st.sampled_from([1000, 100_000, 10**7]),
                "overlap_comm": st.booleans(),
                "contiguous_gradients": st.booleans(),
                "round_robin_gradients": st.booleans(),
            }
        ),
        "fetching": st.fixed_dictionaries(
            {
                "stage3_prefetch_bucket_size": st.sampled_from([0, 1000, 10**6]),
                "stage3_param_persistence_threshold": st.sampled_from([0, 256, 10**5]),
                "stage3_max_live_parameters": st.sampled_from([0, 10**5, 10**9]),
                "stage3_max_reuse_distance": st.sampled_from([0, 10**5, 10**9]),
                "sub_group_size": st.sampled_from([10**4, 10**9]),
                "zero_init": st.booleans(),
                "memory_efficient_linear": st.booleans(),
                "zero_hpz_partition_size": st.sampled_from([1, 2]),
            }
        ),
    }
)


def ledger(strategy: str, ranks: int, run: dict[str, Any]) -> Ledger:
    options = {**run["options"], **(run["fetching"] if strategy == "zero3" else {})} if strategy != "ddp" else {}
    framework = "transformers" if strategy == "ddp" else "deepspeed"
    plan = plan_of(
        run["model"],
        precision=MIXED,
        batch={"sequence": 32, "accumulation": run["accumulation"]},
        parallel={"strategy": strategy, "world": ranks, "dp": ranks, "options": options},
        stack={"framework": framework, "recompute": run["recompute"]},
    )
    return rank_ledger(plan, build(plan.keys()), "sm90")


@settings(deadline=None, max_examples=25)
@given(runs, st.sampled_from(["zero1", "zero2", "zero3"]), st.integers(1, 5), st.integers(1, 5))
def test_more_ranks_never_raise_what_is_divided(run: dict[str, Any], strategy: str, ranks: int, more: int) -> None:
    few, many = (states_of(ledger(strategy, count, run)) for count in (ranks, ranks + more))
    assert all(many[kind] <= few[kind] for kind in DIVIDED)


@settings(deadline=None, max_examples=25)
@given(runs, st.integers(2, 9))
def test_a_higher_stage_keeps_no_more(run: dict[str, Any], ranks: int) -> None:
    kinds = ("weights", *DIVIDED)
    found = [states_of(ledger(strategy, ranks, run)) for strategy in ("zero3", "zero2", "zero1", "ddp")]
    kept = [sum(states[kind] for kind in kinds) for states in found]
    assert kept[0] <= kept[1] + ROUNDING
    assert kept[1] == kept[2] <= kept[3] + ROUNDING


@settings(deadline=None, max_examples=30)
@given(runs, st.sampled_from(["zero1", "zero2", "zero3"]), st.integers(1, 9))
def test_lines_add_up_and_every_step_ends_as_the_one_before(run: dict[str, Any], strategy: str, ranks: int) -> None:
    found = ledger(strategy, ranks, run)
    assert all(total(found.lines, one.live) == one.allocated for one in found.moments)
    left: dict[str, int] = {}
    held = 0
    for segment in found.segments:
        held += segment.repeat * sum(
            found.lines[abs(event) - 1].unit * (1 if event > 0 else -1) for event in segment.events if event
        )
        left[segment.moment.partition(":")[0]] = held
    assert left["step 2"] == left["step 1"]
