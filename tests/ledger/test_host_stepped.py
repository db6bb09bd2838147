"""torchao's CPUOffloadOptimizer: copies, gradients and states on the host, small parameters on the device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.base.problems import InputError
from trainledger.lines.line import Account, Place

CPU = {"optimizer": "cpu"}
# Elements of the sample model's parameters, and how many there are of each.
SIZES = [(1024 * 256, 2), (256 * 256, 6), (128 * 256, 6), (640 * 256, 9), (256, 7)]


def made(**sections: Any) -> Estimate:
    return estimate(plan_of(**sections))


def power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def hosted(answer: Estimate, account: Account) -> int:
    assert all(line.place is Place.HOST for line, _ in answer.ledger.host)
    return sum(line.unit * copies for line, copies in answer.ledger.host if line.account is account)


def test_the_host_holds_copies_rounded_up_and_the_states_as_they_are() -> None:
    answer = made(offload=CPU)
    large = [(size, count) for size, count in SIZES if size >= 4096]
    pinned = sum(power(2 * size) * count for size, count in large)
    assert hosted(answer, Account.WEIGHTS) == hosted(answer, Account.GRADIENTS) == pinned
    assert hosted(answer, Account.OPTIMIZER) == sum(4 * size * count for size, count in large)


def test_only_small_parameters_have_states_on_the_device() -> None:
    here, away = states_of(made().ledger), states_of(made(offload=CPU).ledger)
    assert away["optimizer_states"] == 7 * 2 * 512  # two moments of a norm, a block each
    assert (away["weights"], away["gradients"]) == (here["weights"], here["gradients"])
    every = made(offload=CPU, optimizer={"options": {"minimal_size": 1}})
    assert states_of(every.ledger)["optimizer_states"] == 0
    assert hosted(every, Account.OPTIMIZER) == 4 * every.parameters.total


def test_gradients_leave_as_they_come() -> None:
    kept, freed = made(offload=CPU), made(offload=CPU, optimizer={"options": {"offload_gradients": True}})
    moments = [{one.name: one.allocated for one in found.ledger.moments} for found in (kept, freed)]
    last = "step 2: backward of the embedding"
    assert moments[0][last] - moments[1][last] > kept.parameters.total
    assert states_of(freed.ledger)["gradients"] == 0
    assert freed.ledger.host == kept.ledger.host


@pytest.mark.parametrize(
    ("sections", "word"),
    [
        ({"optimizer": {"name": "lion", "implementation": None}}, "stepped on the host"),
        ({"precision": {"master": "fp32"}}, "master weights"),
        ({"optimizer": {"in_backward": True}}, "in_backward"),
        ({"optimizer": {"options": {"offload_gradients": True}}, "batch": {"accumulation": 2}}, "accumulation"),
        ({"optimizer": {"options": {"offload_gradients": True}, "grad_clip": 1.0}}, "grad_clip"),
        ({"parallel": {"strategy": "ddp", "dp": 2}}, "on one device"),
    ],
)
def test_what_cannot_run_is_refused(sections: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        made(**sections, offload=CPU)


def test_its_settings_are_of_no_use_without_it() -> None:
    with pytest.raises(InputError, match="of an optimizer that one device steps"):
        made(optimizer={"options": {"offload_gradients": True}})
