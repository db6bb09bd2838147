"""What must hold of any plan whose model states are sharded."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.lines.stream import total

GPT2 = {"model_type": "gpt2", "n_embd": 136, "n_layer": 2, "n_head": 4, "vocab_size": 513, "n_positions": 512}
TIED = {**LLAMA, "model_type": "qwen3", "head_dim": 64, "tie_word_embeddings": True}
BLOCK, TENSORS = 512, 200
MIXED = {"weights": "fp32", "compute": "bf16", "autocast": False, "gradients": "fp32"}
FLAT = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")
strategies = st.one_of(
    st.fixed_dictionaries(
        {
            "strategy": st.just("fsdp2"),
            "dp": st.sampled_from([2, 3, 8, 64]),
            "reshard_after_forward": st.booleans(),
            "options": st.fixed_dictionaries(
                {"no_sync": st.booleans(), "auto_wrap_policy": st.sampled_from(["TRANSFORMER_BASED_WRAP", "NO_WRAP"])}
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "strategy": st.just("hsdp"),
            "dp": st.just(16),
            "shard": st.sampled_from([2, 4, 8]),
            "options": st.fixed_dictionaries({"fsdp_version": st.sampled_from([1, 2]), "no_sync": st.booleans()}),
        }
    ),
    st.fixed_dictionaries(
        {
            "strategy": st.just("fsdp1"),
            "dp": st.sampled_from([2, 3, 8, 64]),
            "options": st.fixed_dictionaries(
                {
                    "sharding_strategy": st.sampled_from(FLAT),
                    "use_orig_params": st.booleans(),
                    "backward_prefetch": st.sampled_from(["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]),
                    "forward_prefetch": st.booleans(),
                    "no_sync": st.booleans(),
                    "auto_wrap_policy": st.sampled_from(["TRANSFORMER_BASED_WRAP", "NO_WRAP"]),
                }
            ),
        }
    ),
)
plans = st.fixed_dictionaries(
    {
        "model": st.sampled_from([LLAMA, GPT2, TIED]),
        "precision": st.one_of(
            st.just({}),
            st.sampled_from(["bf16", "fp32", None]).map(lambda reduce: {**MIXED, "reduce": reduce}),
        ),
        "optimizer": st.fixed_dictionaries(
            {"implementation": st.sampled_from(["foreach", "fused"]), "grad_clip": st.sampled_from([None, 1.0])}
        ),
        "batch": st.fixed_dictionaries({"accumulation": st.integers(1, 4)}),
        "stack": st.fixed_dictionaries(
            {
                "recompute": st.sampled_from(
                    ["none", {"kind": "full", "reentrant": False}, {"kind": "full", "reentrant": True}]
                ),
                "versions": st.sampled_from(
                    [{"torch": "2.14.1"}, {"torch": "2.4.1"}, {"torch": "2.13.0", "accelerate": "1.15.0"}]
                ),
                "options": st.sampled_from([{}, {"zero_grad_set_to_none": False}]),
            }
        ),
        "parallel": strategies,
    }
)  # fmt: skip


def made(**sections: Any) -> Estimate:
    return estimate(plan_of(**sections))


@settings(max_examples=80, deadline=None)
@given(plans)
def test_lines_add_up_and_nothing_leaks(sections: dict[str, Any]) -> None:
    """Every gather and reduction ends: step 2 leaves what step 1 left, its end of an optimizer's step included."""
    found = made(**sections)
    for moment in found.ledger.moments:
        assert total(found.ledger.lines, moment.live) == moment.allocated
        assert all(copies > 0 for _, copies in moment.live)
    ends = [
        dict.fromkeys(found.ledger.lines[line].account for line, _ in moment.live) for moment in found.ledger.moments
    ]
    optimizer = [set(end) for end, moment in zip(ends, found.ledger.moments, strict=True) if "optimizer" in moment.name]
    assert not any({"gathered_weights", "gradient_reduction"} & {one.value for one in end} for end in optimizer)


@settings(max_examples=25, deadline=None)
@given(plans, st.sampled_from(["fsdp2", "fsdp1"]))
def test_more_ranks_never_raise_what_is_sharded(sections: dict[str, Any], strategy: str) -> None:
    parallel = {**sections["parallel"], "strategy": strategy, "shard": None, "options": {}}
    few, many = (states_of(made(**{**sections, "parallel": {**parallel, "dp": dp}}).ledger) for dp in (2, 8))
    whole = states_of(made(**{**sections, "parallel": {"strategy": "ddp", "dp": 8}}).ledger)
    for kind in ("weights", "optimizer_states"):
        assert many[kind] <= few[kind] <= whole[kind]
        assert 8 * many[kind] + BLOCK * TENSORS >= whole[kind]  # every whole tensor is rounded to a block of its own


@settings(max_examples=20, deadline=None)
@given(plans)
def test_offloaded_weights_leave_the_device(sections: dict[str, Any]) -> None:
    """Nothing leaks, and no moment of a step holds more than without offload but for shards on their way."""
    parallel = {**sections["parallel"]}
    parallel["options"] = {**parallel.get("options", {}), "no_sync": True}
    here = made(**{**sections, "parallel": parallel})
    away = made(**{**sections, "parallel": parallel, "offload": {"params": "cpu", "optimizer": "cpu"}})
    states = states_of(away.ledger)
    assert states["weights"] == states["optimizer_states"] == states["master_weights"] == 0
    assert not here.ledger.host
    kept = states_of(here.ledger)
    beside = sum(line.unit * copies for line, copies in away.ledger.host)
    assert beside + BLOCK * TENSORS >= kept["weights"] + kept["optimizer_states"]
    for moment in away.ledger.moments:
        assert total(away.ledger.lines, moment.live) == moment.allocated
        assert all(copies > 0 for _, copies in moment.live)
    last = [line + 1 for line, _ in _left(away)]
    names = {away.ledger.lines[line - 1].account.value for line in last}
    assert not names & {"gathered_weights", "gradient_reduction", "gradients", "weights", "optimizer_states"}
    assert away.steps.allocated.expected < here.steps.allocated.expected


@settings(max_examples=25, deadline=None)
@given(
    st.integers(100, 3_000_000),
    st.fixed_dictionaries(
        {
            "sharding_strategy": st.sampled_from(FLAT),
            "use_orig_params": st.booleans(),
            "backward_prefetch": st.sampled_from(["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]),
            "forward_prefetch": st.booleans(),
            "no_sync": st.booleans(),
        }
    ),
    st.integers(1, 3),
    st.sampled_from(["none", {"kind": "full", "reentrant": False}]),
)
def test_units_of_any_size_leave_nothing_behind(
    least: int, options: dict[str, Any], accumulation: int, recompute: Any
) -> None:
    """Every gather of a module ends, and the states are those of any other wrapping, but for padding."""
    given = {"strategy": "fsdp1", "dp": 4, "options": {**options, "auto_wrap_policy": "NO_WRAP"}}
    sections = {"batch": {"accumulation": accumulation}, "stack": {"recompute": recompute}}
    whole = made(parallel=given, **sections)
    size = {"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": least}
    found = made(parallel={**given, "options": {**options, **size}}, **sections)
    for moment in found.ledger.moments:
        assert total(found.ledger.lines, moment.live) == moment.allocated
        assert all(copies > 0 for _, copies in moment.live)
    accounts = {found.ledger.lines[line].account.value for line, _ in _left(found)}
    assert not accounts & {"gathered_weights", "gradient_reduction"}
    ours, theirs = states_of(found.ledger), states_of(whole.ledger)
    for kind in ("weights", "optimizer_states"):
        assert abs(ours[kind] - theirs[kind]) <= BLOCK * TENSORS
    if least > found.parameters.total:
        assert found.ledger.moments == whole.ledger.moments


def _left(found: Estimate) -> list[tuple[int, int]]:
    """Lines that are alive when the run as written ends, with their copies."""
    counts: dict[int, int] = {}
    for segment in found.ledger.segments:
        for event in segment.events:
            line = abs(event) - 1
            counts[line] = counts.get(line, 0) + segment.repeat * (1 if event > 0 else -1)
    assert all(count >= 0 for count in counts.values())
    return [(line, count) for line, count in counts.items() if count]
