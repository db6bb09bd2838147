"""Pipelines that split backwards: what stays between the passes of inputs and of weights."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.ledger.test_pipelined import DEEP, HIDDEN, left, most
from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.ledger.rank import Ledger
from trainledger.lines.actions import Kind, flights
from trainledger.lines.pipeline import pipeline_of
from trainledger.lines.schedules import actions
from trainledger.plan.schema import Plan
from trainledger.plan.stages import split_of, stages

SPLIT = [("zb-h1", 1, 2), ("zb-h1", 2, 2), ("zb-v", 2, 2), ("zb-v", 2, 4), ("dualpipev", 2, 2), ("dualpipev", 2, 4)]
LINEAR, READ = "model.layers.*.mlp.down_proj.weight", "model.layers.*.mlp.up_proj: output"
SLOPE = "model.layers.*.gradient of mlp.gate_proj: output"


def plan_at(schedule: str, vpp: int, pp: int, torch: str = "2.13.0", **given: Any) -> Plan:
    parallel = {"strategy": "fsdp2", "dp": 2, "pp": pp, "vpp": vpp, "schedule": schedule}
    parallel["reshard_after_forward"] = False
    precision = {"weights": "fp32", "compute": "bf16", "gradients": "fp32", "reduce": given.pop("reduce", "fp32")}
    stack = {"framework": "torchtitan", "versions": {"torchtitan": "9dec370", "torch": torch}, "recompute": "none"}
    batch = {"sequence": 512, "accumulation": given.pop("accumulation", 8)}
    return plan_of(
        {**DEEP, "num_hidden_layers": 14 if vpp * pp == 8 else 10}, parallel=parallel, precision=precision,
        stack={**stack, **given}, batch=batch,
    )  # fmt: skip


def ledger(rank: int, *how: Any, **given: Any) -> Ledger:
    return estimate(plan_at(*how, **given), rank).ledger


def highest(made: Ledger, name: str, dtype: str = "bf16") -> int:
    """The most tensors of this name and dtype that are there at once."""
    wanted = {at for at, line in enumerate(made.lines) if line.name == name and line.dtype.name == dtype}
    alive = there = 0
    for _, events, repeat, _ in made.segments:
        for _ in range(repeat):
            for event in events:
                if abs(event) - 1 in wanted:
                    alive += 1 if event > 0 else -1
                    there = max(there, alive)
    return there


@pytest.mark.parametrize("how", SPLIT, ids=str)
@pytest.mark.parametrize("torch", ["2.13.0", "2.7.0"])
@pytest.mark.parametrize("reduce", ["fp32", "bf16"])
def test_every_rank_replays_and_a_step_leaves_what_it_found(how: Any, torch: str, reduce: str) -> None:
    for rank in range(0, 2 * how[2], 2):
        made = ledger(rank, *how, torch=torch, reduce=reduce)
        assert left(made, 1) == left(made, 2)
        alive = Counter[int]()
        for _, events, repeat, _ in made.segments:
            for event in events:
                alive[abs(event) - 1] += repeat if event > 0 else -repeat
                assert repeat > 1 or alive[abs(event) - 1] >= 0


def split(rank: int, plan: Plan) -> int:
    """How often a rank takes a gradient of inputs alone, of a stage that has one."""
    order = actions(pipeline_of(plan), rank)
    return sum(one.kind is Kind.INPUT and not (rank == 0 and one.chunk == 0) for one in order)


@pytest.mark.parametrize("how", SPLIT, ids=str)
def test_the_gradient_of_an_input_stays_until_the_next_step(how: Any) -> None:
    """But for a stage that hands it to the one before on its rank."""
    plan = plan_at(*how)
    for rank in range(how[2] - 1):
        kept = left(estimate(plan, 2 * rank).ledger, 2).get("gradient of hidden states", 0)
        assert kept == split(rank, plan)


def test_whole_backwards_keep_no_gradient_of_an_output_and_halves_do() -> None:
    whole, halves = ledger(2, "1f1b", 1, 2), ledger(2, "zb-h1", 1, 2)
    assert highest(whole, SLOPE) == 1 < highest(halves, SLOPE)


def layers_of(schedule: str, vpp: int, pp: int, rank: int) -> int:
    """Layers of a rank's chunks together."""
    plan = plan_at(schedule, vpp, pp)
    layers = split_of(plan, int(plan.keys()["num_hidden_layers"]))
    return sum(one.layers for one in stages(layers) if one.rank == rank)


@pytest.mark.parametrize(("pp", "rank"), [(2, 1), (4, 1), (4, 2), (4, 3)])
def test_what_layers_read_waits_in_flight_and_put_off(pp: int, rank: int) -> None:
    """As many micro-batches at once as the schedule's order says; gradients of outputs for those put off alone."""
    plan = plan_at("zb-h1", 1, pp)
    made, layers = estimate(plan, 2 * rank).ledger, layers_of("zb-h1", 1, pp, rank)
    flown = [flight for _, flight in flights(actions(pipeline_of(plan), rank))]
    assert highest(made, READ) == layers * max(sum(one.flying) + sum(one.pending) for one in flown)
    assert highest(made, SLOPE) == layers * max(sum(one.pending) for one in flown)


def test_weights_gradients_wait_in_their_own_dtype_until_the_next_pass() -> None:
    assert highest(ledger(2, "1f1b", 1, 2), LINEAR) == 1
    one_more = 1  # which is added to those that are there
    assert highest(ledger(2, "zb-h1", 1, 2), LINEAR) == layers_of("zb-h1", 1, 2, 1) + one_more


def test_the_first_stage_runs_its_backward_where_weights_have_theirs() -> None:
    """It keeps no gradients of outputs."""
    assert highest(ledger(0, "zb-h1", 1, 2), SLOPE) == 1


def test_a_stage_behind_another_on_its_rank_reads_that_ones_output() -> None:
    """The last rank of a V holds one hidden state for both, in place of an output and a buffer."""
    names = ("hidden states", "hidden states received")
    far, near = (ledger(rank, "zb-v", 2, 2) for rank in (0, 2))
    line = next(line for line in near.lines if line.name == "hidden states")
    assert line.unit == HIDDEN
    assert all(any(line.name == name for line in one.lines) for one in (far, near) for name in names)
    assert most(near, "hidden states received") == 16  # of both stages, before the first of them is taken


@pytest.mark.parametrize(
    ("given", "path"),
    [({"compile": True}, "stack.compile"), ({"recompute": "full"}, "stack.recompute.kind")],
)
def test_what_cannot_be_split_is_refused(given: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        ledger(0, "zb-v", 2, 2, **given)
    assert [one.path for one in caught.value.problems] == [path]
