"""FSDP2 under PyTorch's pipelines: what a stage holds, and that every step leaves what it found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.ledger.rank import Ledger
from trainledger.lines.line import Account
from trainledger.plan.schema import Plan

DEEP = {**LLAMA, "num_hidden_layers": 8}
HIDDEN = 2 * 512 * 256  # bytes of one hidden state
LOGITS = 2 * 512 * 1024


def pipeline(model: dict[str, Any] = DEEP, accumulation: int = 8, torch: str = "2.13.0", **parallel: Any) -> Plan:
    given = {"strategy": "fsdp2", "dp": 2, "pp": 2, "schedule": "1f1b", "reshard_after_forward": False, **parallel}
    precision = {"weights": "fp32", "compute": "bf16", "gradients": "fp32", "reduce": "fp32"}
    stack = {
        "framework": "torchtitan", "versions": {"torchtitan": "9dec370", "torch": torch}, "recompute": "full",
    }  # fmt: skip
    batch = {"sequence": 512, "accumulation": accumulation}
    return plan_of(model, parallel=given, precision=precision, stack=stack, batch=batch)


def ledger(rank: int, **parallel: Any) -> Ledger:
    return estimate(pipeline(**parallel), rank).ledger


def most(made: Ledger, name: str) -> int:
    """The most copies of lines with this name that are there at once."""
    numbers = {number for number, line in enumerate(made.lines) if line.name == name}
    return max(sum(copies for number, copies in moment.live if number in numbers) for moment in made.moments)


def left(made: Ledger, step: int) -> dict[str, int]:
    """What is there in the optimizer's update of a step that no state is: copies by name."""
    transient = (Account.ACTIVATIONS, Account.BACKWARD, Account.LOGITS, Account.GATHERED, Account.REDUCTION)
    live = next(one.live for one in made.moments if one.name == f"step {step}: optimizer")
    return {made.lines[line].name: count for line, count in live if made.lines[line].account in transient}


def test_a_step_leaves_what_it_found() -> None:
    """But for the optimizer's states, which the first step makes, and the last stage's logits until the next step."""
    assert left(ledger(0), 1) == left(ledger(0), 2) == {}
    assert left(ledger(3), 1) == left(ledger(3), 2) == {"logits of a micro-batch that has run": 8}


@pytest.mark.parametrize(
    ("torch", "first", "last"),
    [
        ("2.9.0", {}, {"gradient of hidden states": 8}),
        ("2.7.0", {"hidden states": 8}, {"gradient of hidden states": 8}),
        (
            "2.6.0",
            {"hidden states": 8, "gradients of model.layers to reduce": 1},
            {"gradient of hidden states": 8, "gradients of model.layers to reduce": 1},
        ),
    ],
)
def test_older_releases_keep_more_until_the_next_step(torch: str, first: dict[str, int], last: dict[str, int]) -> None:
    for rank, kept in ((0, first), (3, last | {"logits of a micro-batch that has run": 8})):
        made = ledger(rank, torch=torch)
        assert {name: left(made, 2).get(name) for name in kept} == kept
        assert left(made, 1) == left(made, 2)
        assert len(left(made, 2)) == len(kept)


def test_stages_receive_in_buffers_of_their_own_for_every_micro_batch() -> None:
    first, last = ledger(0), ledger(3)
    assert most(first, "gradients received") == 8
    assert most(first, "hidden states received") == 0
    assert most(last, "hidden states received") >= 7  # one is a stage's input
    assert most(last, "gradients received") == 0


def test_the_last_stage_keeps_the_logits_of_all_micro_batches() -> None:
    made = ledger(3)
    assert most(made, "logits of a micro-batch that has run") == 8
    assert {line.unit for line in made.lines if line.name == "logits of a micro-batch that has run"} == {LOGITS}


def test_ranks_have_the_layers_of_their_stages() -> None:
    names = [{line.name for line in ledger(rank).lines} for rank in (0, 3)]
    words, head = (f"first_moment values of {name}.weight" for name in ("model.embed_tokens", "lm_head"))
    assert [(words in found, head in found) for found in names] == [(True, False), (False, True)]


def test_gradients_wait_whole_in_the_dtype_of_reductions() -> None:
    made = ledger(0)
    waits = [line for line in made.lines if line.name.endswith("up_proj.weight (not reduced yet)")]
    assert {(line.dtype.name, line.unit) for line in waits} == {("fp32", 4 * 640 * 256)}


def test_gradients_begin_to_wait_in_the_order_of_the_unit() -> None:
    """Held against torchtitan 0.2.2 on PyTorch's own allocator: FSDP goes through its own list, not as they arrive."""
    made = ledger(0)
    first = next(one for one in made.segments if one.moment.startswith("step 1: backward of layer"))
    names = [made.lines[event - 1].name for event in first.events if event > 0]
    waits = [name.split(".")[-2] for name in names if "not reduced yet" in name and "norm" not in name]
    assert waits == ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def test_interleaved_stages_hold_more_in_flight() -> None:
    model = {**DEEP, "num_hidden_layers": 10}
    plain = estimate(pipeline(model), 0).ledger
    loops = estimate(pipeline(model, schedule="interleaved", vpp=2), 0).ledger
    hidden = next(line for line in plain.lines if line.name == "hidden states")
    assert hidden.unit == HIDDEN
    assert most(loops, "hidden states") > most(plain, "hidden states")


@pytest.mark.parametrize(
    ("parallel", "path"),
    [
        ({"schedule": "zb-h2"}, "parallel.schedule"),
        ({"schedule": "zb-h1"}, "stack.recompute.kind"),
        ({"reshard_after_forward": True}, "parallel.reshard_after_forward"),
    ],
)
def test_what_is_not_known_is_refused(parallel: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        estimate(pipeline(**parallel))
    assert [one.path for one in caught.value.problems] == [path]


def test_context_parallel_ranks_run_their_part_of_the_sequence() -> None:
    whole, part = (
        estimate(pipeline(pp=1, schedule=None, accumulation=1, cp=cp, dp=1, shard=cp)).ledger for cp in (1, 2)
    )
    units = [next(line.unit for line in made.lines if line.name == "hidden states") for made in (whole, part)]
    assert units == [HIDDEN, HIDDEN // 2]


def test_what_waits_in_the_dtype_of_reductions_is_added_to_in_place() -> None:
    """However many micro-batches there are, a step leaves what it found."""
    plan = pipeline(reshard_after_forward=False)
    plan = plan.model_copy(update={"precision": plan.precision.model_copy(update={"reduce": "bf16"})})
    made = estimate(plan, 0).ledger
    assert left(made, 1) == left(made, 2) == {}
    alive: Counter[int] = Counter()
    ends: dict[str, int] = {}
    for moment, events, repeat, _ in made.segments:
        for event in events * repeat:
            alive[abs(event)] += 1 if event > 0 else -1
        ends[moment] = sum(made.lines[line - 1].unit * count for line, count in alive.items() if line)
    assert ends["step 1: optimizer"] == ends["step 2: optimizer"]
