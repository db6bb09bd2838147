"""What a layer with experts keeps, against closed formulas, and what its dispatcher keeps of a graph."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from tests.ledger.test_megatron import BATCH, GPT, HIDDEN, LLAMA, LOCAL, SEQUENCE, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_moe import rows_of
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.mega_routing import Routing
from trainledger.ledger.megatron import job_of
from trainledger.lines.parts import Parts
from trainledger.model.build import model_of
from trainledger.model.operations_megatron_moe import taken_apart
from trainledger.plan.schema import Plan

TOKENS, WIDTH = SEQUENCE * BATCH, 1536
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": WIDTH}
ALL_TO_ALL = {"moe_token_dispatcher_type": "alltoall"}
FUSED = {**LOCAL, "bias_activation_fusion": True}


def routed(base: dict[str, Any] = LLAMA, options: dict[str, Any] = ALL_TO_ALL, **parts: Any) -> Plan:
    parallel = {"dp": 4, "options": options, **parts.pop("parallel", {})}
    return plan_of({**base, "add_bias_linear": False, **EXPERTS, **parts.pop("model", {})}, parallel=parallel, **parts)


def kept(plan: Plan) -> int:
    """Bytes that one layer keeps for its backward."""
    job = job_of(plan, model_of(plan), "sm90")
    walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
    (kind,), _ = walks.groups(walks.whole())[0]
    walked = walks.layer((kind,), False, (False, False))
    return sum(job.book.lines[abs(event) - 1].unit * (1 if event > 0 else -1) for event in walked.forward)


MAPS = 8 + 8 + 4  # of each row: its place among tokens, its expert's number, its softmax in fp32
ROWS = [
    (LLAMA, LOCAL, 2 * HIDDEN + 12 * WIDTH + 2),  # fc1, silu, the other half, their product, and that weighed
    (LLAMA, FUSED, 2 * HIDDEN + 6 * WIDTH + 2),
    (GPT, LOCAL, 2 * HIDDEN + 6 * WIDTH + 2),
]


ALL_GATHER = {"moe_token_dispatcher_type": "allgather"}


@pytest.mark.parametrize(
    ("way", "parallel", "release", "each"),
    [
        (ALL_TO_ALL, {}, "0.19.2", 2 * HIDDEN),
        (ALL_GATHER, {"ep": 4}, "0.19.2", 2 * HIDDEN),
        (ALL_TO_ALL, {}, "0.15.0", 2 * HIDDEN),
        (ALL_TO_ALL, {}, "0.14.0", 0),
    ],
)
def test_rows_that_are_added_up_deterministically_are_kept(
    way: dict[str, Any], parallel: dict[str, Any], release: str, each: int
) -> None:
    plain, fixed = (
        kept(
            routed(
                options=way,
                parallel=parallel,
                stack={"options": {**LOCAL, "deterministic_mode": on}, "versions": {"megatron-core": release}},
            )
        )
        for on in (False, True)
    )
    rows = 2 * TOKENS
    assert (fixed - plain) / rows == pytest.approx(each, abs=1)


@pytest.mark.parametrize(("model", "options", "each"), ROWS)
def test_every_row_of_an_expert_keeps_its_input_and_what_its_function_reads(
    model: dict[str, Any], options: dict[str, Any], each: int
) -> None:
    one, two = (kept(routed(model, model={"num_experts_per_tok": k}, stack={"options": options})) for k in (1, 2))
    assert (two - one) / TOKENS == pytest.approx(each + MAPS, abs=4)


@pytest.mark.parametrize("grouped", [False, True])
def test_experts_biases_are_weights_and_keep_nothing_of_rows(grouped: bool) -> None:
    options = {**ALL_TO_ALL, "moe_grouped_gemm": grouped}
    plain, biased = (routed(GPT, options, model={"add_bias_linear": one}) for one in (False, True))
    rows = 2 * TOKENS * 2 * WIDTH
    more = kept(biased) - kept(plain)
    assert 0 <= more < rows / 8  # a sum with the bias takes the place of what it is the sum of
    layer = [one for one in model_of(biased).blocks[0].weights if "experts" in one.name]
    count = EXPERTS["num_experts"]
    assert sum(one.elements for one in layer if one.name.endswith("bias")) == count * (WIDTH + HIDDEN)
    names = [one.name for one in taken_apart(tuple(layer), grouped)]
    ahead = "weight0" if grouped else "0.linear_fc1.weight"
    behind = "bias0" if grouped else "0.linear_fc1.bias"
    assert [name.endswith(end) for name, end in zip(names, (ahead, behind), strict=False)] == [True, True]
    parts = {"dp": 4, "ep": 2}
    assert estimate(routed(GPT, options, model={"add_bias_linear": True}, parallel=parts)).steps.allocated.expected


def test_shared_experts_have_no_biases() -> None:
    model = {"add_bias_linear": True, "shared_expert_intermediate_size": 512}
    with pytest.raises(InputError, match="shared experts"):
        estimate(routed(GPT, model=model))


@pytest.mark.parametrize("ep", [2, 4])
def test_expert_parallelism_keeps_as_many_rows(ep: int) -> None:
    assert kept(routed(parallel={"ep": ep})) == pytest.approx(kept(routed()), rel=1e-4)


def test_a_fuller_rank_keeps_more_rows() -> None:
    mean, full = (kept(routed(parallel={"ep": 4}, batch={"expert_load": load})) for load in (1.0, 1.5))
    rows = 2 * TOKENS
    assert (full - mean) / (rows / 2) == pytest.approx(2 * HIDDEN + 12 * WIDTH + 2, abs=2)


def test_a_router_in_fp32_weighs_in_fp32_and_keeps_wider_probabilities() -> None:
    wide = {**ALL_TO_ALL, "moe_router_dtype": "fp32"}
    more = kept(routed(options=wide)) - kept(routed())
    rows, logits = 2 * TOKENS, TOKENS * EXPERTS["num_experts"]
    assert 0 < more <= 2 * rows + 4 * logits  # the weighed product itself is cast back


def test_all_gathered_tokens_keep_as_much_as_tokens_sent() -> None:
    sent = kept(routed(parallel={"ep": 4}))
    gathered = kept(routed(options={"moe_token_dispatcher_type": "allgather"}, parallel={"ep": 4}))
    assert gathered == pytest.approx(sent, rel=0.01)


@pytest.mark.parametrize(
    ("routing", "sent", "taken"),
    [
        (Routing(), 200, 200),
        (Routing(capacity=1.0), 200, 200),
        (Routing(capacity=1.0, padded=True), 200, 200),
        (Routing(capacity=0.5, padded=True), 104, 104),  # 13 tokens of each of 8 experts
        (Routing(capacity=0.5), 104, 104),
        (Routing(load=1.5), 200, 300),
        (Routing(load=0.0), 200, 800),  # all tokens of 4 ranks choose both of the rank's experts
    ],
)
def test_rows_that_a_rank_sends_and_is_given(routing: Routing, sent: int, taken: int) -> None:
    assert routing.sent(100, 8, 2) == sent
    assert routing.taken(100, 8, 2, Parts(ep=4)) == taken


def test_tensor_parallel_experts_are_given_the_rows_of_all_their_ranks() -> None:
    assert Routing().taken(100, 8, 2, Parts(ep=2, etp=2)) == 2 * Routing().taken(100, 8, 2, Parts(ep=2))


def test_rows_are_spread_evenly() -> None:
    assert rows_of(10, 4) == [3, 3, 2, 2]


def test_a_layer_that_runs_again_leaves_its_input_and_the_gradient_of_it() -> None:
    """The dispatcher holds probabilities, they hold the graph, and its leaf is the layer's input."""
    full = {"kind": "full", "method": "uniform", "num_layers": 1}
    with_experts = estimate(routed(stack={"recompute": full}))
    steady = next(one for one in with_experts.ledger.moments if one.name == "step 2: optimizer")
    lines = with_experts.ledger.lines
    left = {lines[line].name: copies for line, copies in steady.live}
    layers = LLAMA["num_hidden_layers"]
    assert left["hidden states"] == layers
    assert left["gradient of hidden states"] == layers
    dense = estimate(plan_of(LLAMA, parallel={"dp": 4}, stack={"recompute": full}))
    steady = next(one for one in dense.ledger.moments if one.name == "step 2: optimizer")
    assert "hidden states" not in {dense.ledger.lines[line].name for line, _ in steady.live}


def test_an_activation_that_runs_again_keeps_neither_its_result() -> None:
    te = {"kernels": ["te"], "options": {}, "attention": "fused"}
    grouped = {**ALL_TO_ALL, "moe_grouped_gemm": True}
    again = {"kind": "selective", "modules": ["moe_act"]}
    plain = kept(routed(options=grouped, stack=te))
    less = kept(routed(options=grouped, stack={**te, "recompute": again}))
    assert (plain - less) / (2 * TOKENS) == pytest.approx(2 * WIDTH, abs=1)


def kept_with(*names: str) -> int:
    """What is kept where these modules run again."""
    recompute = {"kind": "selective", "modules": list(names)} if names else "none"
    stack = {"framework": "megatron", "kernels": ["te"], "attention": "fused", "options": {}, "recompute": recompute}
    return kept(routed(stack=stack, model={"shared_expert_intermediate_size": 512}))


def test_experts_that_run_again_keep_the_norms_output_unless_it_runs_again_too() -> None:
    """Of all that a layer with experts keeps, beside attention: the norm's input, and its output."""
    one = 2 * SEQUENCE * BATCH * HIDDEN
    assert kept_with("moe") - kept_with("moe", "layernorm") == pytest.approx(one, rel=0.01)
    assert kept_with("moe", "moe_act") == kept_with("moe") == kept_with("moe", "shared_experts") < kept_with("moe_act")


def test_each_pair_of_modules_drops_what_each_drops() -> None:
    none = kept_with()
    for first, second in combinations(("core_attn", "layernorm", "moe_act", "shared_experts"), 2):
        apart = (none - kept_with(first)) + (none - kept_with(second))
        assert none - kept_with(first, second) == pytest.approx(apart, rel=0.001), (first, second)
