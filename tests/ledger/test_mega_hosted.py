"""Whole layers whose saved tensors go to the host: how many layers the device holds, and what the host does."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.tables import host_lines
from trainledger.base.problems import InputError
from trainledger.lines.stream import fold
from trainledger.plan.read import read_plan

from .test_rules_te import LLAMA, live, te

FC1 = "decoder.layers.*.mlp.linear_fc1: output"
LAYERS = LLAMA["num_hidden_layers"]


def answer(count: int, **parts: Any) -> Estimate:
    options = {"cpu_offloading_num_layers": count, **parts.pop("options", {})}
    given = te(LLAMA, stack={"options": options, **parts.pop("stack", {})}, **parts).model_dump(exclude_unset=True)
    return estimate(read_plan({**given, "offload": {"activations": "cpu"}}))


@pytest.mark.parametrize("count", [1, 3, LAYERS - 1])
def test_the_end_of_forward_holds_the_other_layers(count: int) -> None:
    made = answer(count)
    assert live(made, "step 2: forward")[FC1][1] == LAYERS - count
    assert {copies for line, copies in made.ledger.host if line.name == FC1} == {count}


@pytest.mark.parametrize("count", [1, 3, LAYERS - 1])
def test_everything_is_back_for_its_backward_and_gone_at_the_end(count: int) -> None:
    ledger = answer(count).ledger
    alive, most = 0, 0
    number = next(at for at, line in enumerate(ledger.lines) if line.name == FC1)
    for segment in ledger.segments:
        for _ in range(segment.repeat):
            for event in segment.events:
                alive += (event == number + 1) - (event == -number - 1)
                assert alive >= 0
                most = max(most, alive)
    assert alive == 0
    assert most <= LAYERS - count + 2  # the one that runs, and one that leaves or comes back
    plain = estimate(te(LLAMA)).ledger
    ends = [fold(one.lines, one.segments)[-1].allocated for one in (plain, ledger)]
    assert ends[0] == ends[1]  # nothing is left, and nothing went twice


def test_more_layers_on_the_host_leave_less_on_the_device() -> None:
    none = estimate(te(LLAMA))
    sizes = [none, *(answer(count) for count in (2, 4))]
    peaks = [next(one.allocated for one in each.ledger.moments if one.name == "step 2: forward") for each in sizes]
    assert peaks == sorted(peaks, reverse=True)
    assert host_lines(sizes[2].ledger) == 2 * host_lines(sizes[1].ledger)


@pytest.mark.parametrize(
    ("count", "parts", "path"),
    [
        (LAYERS, {}, "cpu_offloading_num_layers"),
        (1, {"parallel": {"pp": 2}}, "parallel.pp"),
        (1, {"stack": {"recompute": {"kind": "full"}}}, "stack.recompute"),
        (1, {"stack": {"kernels": []}}, "stack.kernels"),
    ],
)
def test_what_megatron_core_does_not_run_beside_it(count: int, parts: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError, match=path):
        answer(count, **parts)
