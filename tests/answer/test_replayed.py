"""A ledger replayed on the allocator: blocks, ends, and where each moment is at its largest."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.allocator.conf import DEFAULT, Conf, read_conf
from trainledger.allocator.lined import Lined
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.turned import Turned
from trainledger.answer import replayed as replays
from trainledger.answer.estimate import estimate
from trainledger.answer.replayed import replayed
from trainledger.base.problems import InputError
from trainledger.facts.allocator import CUDA
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of
from trainledger.ledger.rank import payload, rank_ledger
from trainledger.lines.line import Account
from trainledger.lines.stream import Events, total
from trainledger.model.build import build, model_of

WIDE = {**LLAMA, "hidden_size": 1152, "intermediate_size": 6912}


def test_moments_are_at_least_their_tensors_and_add_up_with_the_ends_of_blocks() -> None:
    plan = plan_of(WIDE)
    ledger = rank_ledger(plan, build(plan.keys()), "sm80")
    run = replayed(ledger, DEFAULT)
    assert run is not None
    plain = {moment.name: moment.allocated for moment in ledger.moments}
    for moment in run.ledger.moments:
        assert total(run.ledger.lines, moment.live) == moment.allocated >= plain[moment.name]
    assert max(moment.allocated for moment in run.ledger.moments) <= run.reserved
    assert run.built <= run.reserved


@pytest.mark.parametrize("strategy", ["none", "ddp"])
def test_the_last_step_is_replayed_once_more_without_what_it_does_once(strategy: str) -> None:
    """DDP makes its buckets anew in the second step alone."""
    plan = plan_of(parallel={"strategy": strategy, "world": 2, "dp": 2} if strategy == "ddp" else {})
    ledger = rank_ledger(plan, build(plan.keys()), "sm80")
    run = replayed(ledger, DEFAULT)
    assert run is not None
    buckets = {at for at, line in enumerate(ledger.lines) if line.name.startswith("bucket of")}
    assert bool(buckets) == (strategy == "ddp")
    counts = [(one, len(one.events) * one.repeat) for one in ledger.segments]
    more = sum(
        size
        for one, size in counts
        if one.moment.startswith("step 2:") and not all(abs(event) - 1 in buckets for event in one.events)
    )
    assert len(run.stream) == sum(size for _, size in counts) + more
    assert run.ledger.segments == ledger.segments


def test_repeats_of_the_last_step_end_once_one_takes_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    ledger = rank_ledger(plan, build(plan.keys()), "sm80")
    last = tuple(one for one in ledger.segments if one.moment.startswith("step 2:"))
    seen: list[int] = []
    original = Turned.run

    def noted(self: Turned, events: Events, lane: int = 0) -> None:
        original(self, events, lane)
        seen.append(self.at)

    monkeypatch.setattr(Turned, "run", noted)
    run = replayed(replace(ledger, segments=(*ledger.segments, *last * 4)), DEFAULT)
    assert run is not None
    one_step = sum(len(one.events) * one.repeat for one in last)
    assert max(seen) <= len(run.stream) - 3 * one_step
    whole = Simulator(DEFAULT)
    whole.run(run.stream)
    assert whole.peak_reserved == run.reserved


def test_a_step_that_begins_as_the_one_before_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is that of a replay which runs every step."""
    plan = plan_of(batch={"micro_batch": 1, "sequence": 64, "accumulation": 3})
    ledger = rank_ledger(plan, build(plan.keys()), "sm80")
    last = tuple(one for one in ledger.segments if one.moment.startswith("step 2:"))
    more = replace(ledger, segments=(*ledger.segments, *last * 2))
    short = replayed(more, DEFAULT)
    monkeypatch.setattr(Turned, "state", lambda self: None)
    full = replayed(more, DEFAULT)
    assert short is not None
    assert full is not None
    assert (short.ledger.moments, short.most, short.reserved) == (full.ledger.moments, full.most, full.reserved)


ODD = {**LLAMA, "hidden_size": 1152, "intermediate_size": 3000, "num_hidden_layers": 8}
PIPELINES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("megatron", {"strategy": "megatron-distopt", "world": 4, "pp": 4}, {}),
    ("megatron", {"strategy": "megatron-distopt", "world": 8, "tp": 2, "sp": True, "pp": 2, "vpp": 2}, {}),
    (
        "megatron",
        {"strategy": "megatron-distopt", "world": 2, "pp": 2},
        {"kind": "full", "method": "uniform", "num_layers": 1},
    ),
    ("torchtitan", {"strategy": "fsdp2", "world": 4, "dp": 2, "pp": 2, "schedule": "1f1b"}, {"kind": "full"}),
    ("torchtitan", {"strategy": "fsdp2", "world": 2, "pp": 2, "vpp": 2, "schedule": "interleaved"}, {"kind": "none"}),
    ("torchtitan", {"strategy": "fsdp2", "world": 2, "pp": 2, "vpp": 2, "schedule": "dualpipev"}, {"kind": "none"}),
    ("torchtitan", {"strategy": "fsdp2", "world": 4, "pp": 4, "vpp": 2, "schedule": "zb-v"}, {"kind": "none"}),
]


@pytest.mark.parametrize(("framework", "parallel", "recompute"), PIPELINES)
def test_a_pipelines_replay_is_that_of_every_event(
    monkeypatch: pytest.MonkeyPatch, framework: str, parallel: dict[str, Any], recompute: dict[str, Any]
) -> None:
    """Every stage, with turns that are looked up and with none."""
    stack = {"framework": framework, **({"recompute": recompute} if recompute else {})}
    batch = {"micro_batch": 1, "sequence": 1000, "accumulation": 9 if parallel.get("vpp") != 2 else 12}
    data = {"model": ODD, "batch": batch, "parallel": parallel, "stack": stack, "device": "h100"}
    plan = draft_of(Document(data, {})).plan
    for rank, conf in product(range(parallel["world"]), (DEFAULT, Conf(expandable=True))):
        ledger = rank_ledger(plan, model_of(plan), "sm90", rank)
        found = replayed(ledger, conf)
        with monkeypatch.context() as patched:
            patched.setattr(replays, "lines_on", lambda given, *lines: Lined(Simulator(given), *lines))
            assert replayed(ledger, conf) == found


def test_steps_begin_with_what_building_left_and_not_with_its_peak() -> None:
    """A line that is born and dies while the model is built, and whose block is given back, is reserved then alone."""
    plan = plan_of(parallel={"strategy": "zero3", "world": 2, "dp": 2, "options": {"zero_init": False}})
    found = estimate(plan)
    assert found.peak.reserved.expected >= found.steps.reserved.expected
    run = replayed(rank_ledger(plan, build(plan.keys()), "sm80"), DEFAULT)
    assert run is not None
    assert run.most == max(run.built, run.reserved)


def test_tensors_without_elements_never_reach_the_allocator() -> None:
    phi = {"model_type": "phi3", **{key: value for key, value in LLAMA.items() if key != "model_type"}}
    plan = plan_of(phi, precision={"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"})
    ledger = rank_ledger(plan, build(plan.keys()), "sm80")
    assert not all(payload(line) for line in ledger.lines)  # all of a head is rotated: the rest of it is empty
    run = replayed(ledger, read_conf({"expandable_segments": True}))
    assert run is not None
    assert [(one.name, one.allocated) for one in run.ledger.moments] == [
        (one.name, one.allocated) for one in ledger.moments
    ]


def test_expandable_segments_leave_no_ends() -> None:
    found = {
        expandable: estimate(plan_of(WIDE, stack={"allocator": {"expandable_segments": expandable}}))
        for expandable in (False, True)
    }
    ends = {
        expandable: sum(
            one.ledger.lines[line].unit * copies
            for line, copies in next(m for m in one.ledger.moments if m.name == one.peak.moment).live
            if one.ledger.lines[line].account is Account.ENDS
        )
        for expandable, one in found.items()
    }
    assert ends[True] == 0 < ends[False]
    assert found[True].peak.allocated.expected < found[False].peak.allocated.expected


def test_the_drivers_own_pool_is_not_replayed_and_gets_a_sourced_band() -> None:
    plan = plan_of(stack={"env": {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}})
    found = estimate(plan)
    assert not found.peak.replayed
    assert found.peak.reserved.low < found.peak.reserved.expected < found.peak.reserved.high


def test_a_plan_between_live_tensors_and_reserved_is_decided_by_the_smallest_device() -> None:
    whole = estimate(plan_of(WIDE, batch={"micro_batch": 4, "sequence": 2048}))
    between = (whole.peak.allocated.expected + whole.device.expected) // 2
    device = {"name": "mine", "memory": between}
    found = estimate(plan_of(WIDE, batch={"micro_batch": 4, "sequence": 2048}, device=device))
    assert any("the replay succeeds on" in reason for reason in found.verdict.reasons)


@pytest.mark.parametrize("settings", [{}, {"roundup_power2_divisions": 4}, {"max_split_size_mb": 64}])
def test_every_setting_of_the_allocator_can_be_replayed(settings: dict[str, object]) -> None:
    plan = plan_of()
    ledger = rank_ledger(plan, build(plan.keys()), "sm80")
    run = replayed(ledger, read_conf(settings))
    assert run is not None
    assert run.reserved % (2 * CUDA.small) == 0


def test_a_tensor_that_no_allocator_counts_is_refused() -> None:
    plan = plan_of({**LLAMA, "vocab_size": 8192}, batch={"micro_batch": 2**20, "sequence": 2**30})
    with pytest.raises(InputError, match="a tensor is below"):
        estimate(plan)
