"""Moments after the steps: evaluation, generation, a checkpoint's gathered weights, and a load on the device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.tables import by_part
from trainledger.ledger.beyond import in_steps
from trainledger.lines.line import Account
from trainledger.lines.stream import total

VOCAB, WIDTH, LAYERS = 1024, 2 * 64, 3  # of the sample model: key-value heads x head dim
KEPT = ("keys of a layer", "values of a layer")
OFF = {"options": {"use_cache": False}}
EVALUATED = {"micro_batch": 4, "sequence": 512}
STRATEGIES = [
    {},
    {"parallel": {"strategy": "ddp", "dp": 2}},
    {"parallel": {"strategy": "fsdp1", "dp": 4}},
    {"parallel": {"strategy": "fsdp2", "dp": 4}},
    {"parallel": {"strategy": "zero2", "dp": 4}, "precision": {"master": "fp32"}},
    {"parallel": {"strategy": "zero3", "dp": 4}, "precision": {"master": "fp32"}},
    {"stack": {"recompute": "full"}, "batch": {"accumulation": 2}},
    {"adapter": {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "fp32", "dropout": 0.1}},
]


def moments(answer: Estimate) -> dict[str, int]:
    return {one.name: one.allocated for one in answer.ledger.moments}


def lines(answer: Estimate, moment: str, start: str | tuple[str, ...]) -> int:
    live = next(one.live for one in answer.ledger.moments if one.name == moment)
    found = answer.ledger.lines
    return sum(found[line].unit * copies for line, copies in live if found[line].name.startswith(start))


def above(answer: Estimate, moment: str) -> int:
    """What a moment holds above the states that the steps left: nothing of its own has been there before."""
    states = sum(
        line.unit * copies
        for line, copies in _live(answer, moment)
        if line.account in (Account.WEIGHTS, Account.OPTIMIZER, Account.MASTER, Account.WORKSPACE, Account.BUFFERS)
    )
    return moments(answer)[moment] - states


def _live(answer: Estimate, moment: str) -> Any:
    live = next(one.live for one in answer.ledger.moments if one.name == moment)
    return [(answer.ledger.lines[line], copies) for line, copies in live]


def test_an_evaluation_is_what_real_code_takes() -> None:
    """Traced of Transformers 5.24.0's own model under no_grad, PyTorch 2.13: 12,193,792 B above weights, ids and
    workspace in forward, 22,054,400 B in the loss. The training batch and the last loss still lie there."""
    answer = estimate(plan_of(evaluation=EVALUATED, stack=OFF))
    kept = sum(
        line.unit * copies
        for line, copies in _live(answer, "evaluation: loss")
        if line.account is Account.INPUTS or line.name == "loss"
    )
    assert above(answer, "evaluation: loss") - kept == pytest.approx(22_054_400, abs=2048)
    assert above(answer, "evaluation: forward") - kept == pytest.approx(12_193_792, abs=2048)


@pytest.mark.parametrize("sections", STRATEGIES)
def test_evaluation_leaves_the_steps_as_they_are(sections: dict[str, Any]) -> None:
    plain = estimate(plan_of(**sections))
    after = estimate(
        plan_of(**sections, evaluation={**EVALUATED, "generation": {"batch": 2, "prompt": 64, "tokens": 8}})
    )
    steps = {name: size for name, size in moments(after).items() if in_steps(name) or name == "init"}
    assert steps == moments(plain)
    assert after.steps.allocated == plain.steps.allocated
    assert after.steps.reserved == plain.steps.reserved
    assert {name.partition(":")[0] for name in moments(after)} - {"init", "step 1", "step 2"} == {"evaluation"}
    for moment in after.ledger.moments:
        assert total(after.ledger.lines, moment.live) == moment.allocated
    assert after.peak.allocated.expected == max(moments(after).values())


@pytest.mark.parametrize("sections", STRATEGIES)
def test_nothing_of_an_evaluation_stays(sections: dict[str, Any]) -> None:
    answer = estimate(plan_of(**sections, evaluation=EVALUATED))
    counts: dict[int, int] = {}
    first = next(at for at, one in enumerate(answer.ledger.segments) if one.moment.startswith("evaluation"))
    for _, events, repeat, _ in answer.ledger.segments[first:]:
        for event in events:
            if event:
                counts[abs(event) - 1] = counts.get(abs(event) - 1, 0) + (repeat if event > 0 else -repeat)
    kept = (Account.GATHERED,) if answer.plan.parallel.strategy == "zero3" else ()  # until a later pass
    assert not [
        answer.ledger.lines[line].name
        for line, count in counts.items()
        if count > 0 and answer.ledger.lines[line].account not in kept
    ]


def test_zero_3_s_kept_weights_outlive_an_evaluation() -> None:
    """What its coordinator holds gathered it lets go of by itself: passes in a row are one after the other's."""
    options = {
        "stage3_max_live_parameters": 500_000, "stage3_max_reuse_distance": 100_000,
        "stage3_prefetch_bucket_size": 100_000, "stage3_param_persistence_threshold": 300,
    }  # fmt: skip
    parallel = {"strategy": "zero3", "dp": 4, "options": options}
    how = {**EVALUATED, "generation": {"batch": 2, "prompt": 16, "tokens": 4}}
    sections = {"precision": {"master": "fp32"}, "stack": {"recompute": "full"}, "batch": {"accumulation": 2}}
    answer = estimate(plan_of(parallel=parallel, evaluation=how, **sections))
    live: dict[int, int] = {}
    for _, events, repeat, _ in answer.ledger.segments:
        for event in events * repeat:
            if event:
                live[abs(event) - 1] = live.get(abs(event) - 1, 0) + (1 if event > 0 else -1)
                assert live[abs(event) - 1] >= 0


def test_no_gradient_is_made_and_nothing_is_saved() -> None:
    """Of equal layers none keeps anything: twice the layers hold no more than their weights and states."""
    few = estimate(plan_of(evaluation=EVALUATED, stack=OFF))
    many = estimate(plan_of({**LLAMA, "num_hidden_layers": 6}, evaluation=EVALUATED, stack=OFF))
    assert above(few, "evaluation: forward") == above(many, "evaluation: forward")
    assert not [line for line, _ in _live(many, "evaluation: loss") if line.account is Account.GRADIENTS]


def test_logits_that_are_kept_are_joined_anew_with_every_batch() -> None:
    """The older ones, the batch's own, and both together: 19 + 20 batches while the twentieth is added."""
    one = 4 * 512 * VOCAB * 2
    answer = estimate(plan_of(evaluation={**EVALUATED, "batches": 20, "prediction_loss_only": False}))
    assert lines(answer, "evaluation: logits", "logits of") == (19 + 20) * one
    assert lines(answer, "evaluation: forward", "logits of") == 19 * one
    some = {**EVALUATED, "batches": 20, "prediction_loss_only": False, "accumulation": 5}
    assert lines(estimate(plan_of(evaluation=some)), "evaluation: logits", "logits of") == (4 + 5) * one
    thrown = estimate(plan_of(evaluation={**EVALUATED, "batches": 20}))
    assert lines(thrown, "evaluation: loss", "logits of") == 0


def test_every_rank_s_logits_come_together_on_each() -> None:
    one = 4 * 512 * VOCAB * 2
    kept = {**EVALUATED, "batches": 2, "prediction_loss_only": False}
    answer = estimate(plan_of(parallel={"strategy": "ddp", "dp": 4}, evaluation=kept))
    assert lines(answer, "evaluation: logits", "logits of") == (1 + 2) * 4 * one
    assert lines(answer, "evaluation: logits", "logits gathered") == 4 * one


@pytest.mark.parametrize(
    ("stack", "caches"),
    [
        ({}, True),
        ({"versions": {"torch": "2.3.0", "transformers": "4.40.2", "accelerate": "0.30.0"}}, True),
        ({"versions": {"torch": "2.13.0", "transformers": "5.24.0", "accelerate": "1.15.0"}}, False),
        ({"options": {"use_cache": False}}, False),
    ],
)
def test_a_cache_while_evaluating(stack: dict[str, Any], caches: bool) -> None:
    """Keys and values of every layer until the outputs are let go of; newer Trainers turn it off."""
    answer = estimate(plan_of(stack=stack, evaluation=EVALUATED))
    size = LAYERS * 4 * 512 * 2 * WIDTH * 2
    assert lines(answer, "evaluation: loss", KEPT) == size * caches


def test_generation_grows_a_cache_by_joining() -> None:
    """Keys and values, kv heads x head dim each a token and layer; while one of them is joined, the older is there."""
    how = {"batch": 16, "prompt": 64, "tokens": 960}
    layer = 16 * 1024 * 2 * WIDTH * 2
    answer = estimate(plan_of(evaluation={**EVALUATED, "generation": how}))
    longest = ("keys of a layer, 1,024", "values of a layer, 1,024")
    assert lines(answer, "evaluation: generation", longest) == LAYERS * layer + layer // 2
    assert lines(answer, "evaluation: generation", "logits of the last token") == 16 * VOCAB * 4
    static = estimate(plan_of(evaluation={**EVALUATED, "generation": {**how, "static": True}}))
    assert lines(static, "evaluation: generation", longest) == LAYERS * layer


def test_a_whole_state_dict_gathers_weights_on_the_device() -> None:
    largest = 640 * 256 * 2
    parallel: dict[str, Any] = {"strategy": "fsdp2", "dp": 4, "options": {"state_dict_type": "FULL_STATE_DICT"}}
    answer = estimate(plan_of(parallel=parallel, save={}))
    assert lines(answer, "save", "model.embed_tokens.weight, whole") == VOCAB * 256 * 2 > largest
    assert "save" not in moments(estimate(plan_of(parallel=parallel)))
    parallel["options"] = {"state_dict_type": "SHARDED_STATE_DICT"}
    assert "save" not in moments(estimate(plan_of(parallel=parallel, save={})))
    unit = estimate(plan_of(parallel={"strategy": "fsdp1", "dp": 4}, save={}))
    root = 2 * VOCAB * 256 * 2 + 256 * 2
    assert lines(unit, "save", "model.layers") or lines(unit, "save", "model.embed") + lines(unit, "save", "lm_head")
    assert max(root, 0) > largest


def test_a_model_put_on_the_device_whole_gives_way_to_its_shards() -> None:
    parallel = {"strategy": "fsdp2", "dp": 4}
    weights = 2 * estimate(plan_of()).parameters.total
    placed = estimate(plan_of(parallel=parallel, stack={"options": {"device_map": "cuda"}}))
    plain = estimate(plan_of(parallel=parallel))
    assert moments(plain)["init"] == pytest.approx(weights / 4, rel=0.01)
    assert moments(placed)["init"] == pytest.approx(weights + VOCAB * 256 * 2 / 4, rel=0.01)
    assert moments(placed)["step 2: optimizer"] == moments(plain)["step 2: optimizer"]
    flat = {"strategy": "fsdp1", "dp": 4}
    assert moments(estimate(plan_of(parallel=flat, stack={"options": {"device_map": "cuda"}})))["init"] > weights


def test_parts_of_a_run_at_their_largest() -> None:
    found = {row.name.partition(":")[0]: row for row in by_part(estimate(plan_of(evaluation=EVALUATED)))}
    assert list(found) == ["init", "step 1", "step 2", "evaluation"]
    assert found["step 2"].allocated > found["step 1"].allocated  # Adam's states are there from the second step on
    assert sum(row.is_peak for row in found.values()) == 1


@pytest.mark.parametrize(
    ("rows", "evaluated", "padded"), [(2, {}, True), (2, {"micro_batch": 1}, False), (1, {"micro_batch": 4}, True)]
)
def test_rows_that_are_evaluated_hold_padding_of_their_own(rows: int, evaluated: dict[str, Any], padded: bool) -> None:
    """Samples that differ are padded where several are evaluated at once, however training batches them."""

    def forward(lengths: dict[str, Any]) -> int:
        plan = plan_of(batch={"micro_batch": rows, "sequence": 512}, lengths=lengths, evaluation=evaluated)
        return moments(estimate(plan))["evaluation: forward"]

    more = forward({"median": 90, "longest": 512}) - forward({"longest": 512})
    assert (more > 512 * 512) is padded  # a mask of one row


@pytest.mark.parametrize(
    ("save", "gathers"), [({}, True), ({"format": "torchtune"}, True), ({"asynchronous": True}, False)]
)
def test_torchtune_gathers_weights_one_by_one_for_its_files(save: dict[str, Any], gathers: bool) -> None:
    stack = {"framework": "torchtune", "versions": {"torch": "2.6.0", "torchtune": "0.6.1"}, "loss": None}
    answer = estimate(plan_of(stack=stack, parallel={"strategy": "fsdp2", "dp": 4}, batch={"sequence": 16}, save=save))
    assert ("save" in moments(answer)) == gathers
