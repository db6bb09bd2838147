"""Megatron-Core's optimizer on the host: what stays on the device, and what lies where."""

from __future__ import annotations

import pytest

from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.tables import host_lines
from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError
from trainledger.ledger.mega_hybrid import hosted
from trainledger.ledger.mega_states import Piece
from trainledger.lines.line import Account
from trainledger.model.program import Role
from trainledger.plan.read import read_plan

from .test_megatron import LLAMA, plan_of


def answer(fraction: float | None = None, pinned: bool = True, gradients: str = "fp32") -> Estimate:
    options = {} if fraction is None else {"optimizer_offload_fraction": fraction, "pin_cpu_grads": pinned}
    plan = plan_of(LLAMA, parallel={"dp": 4, "options": options}, precision={"gradients": gradients})
    given = plan.model_dump(exclude_unset=True)
    return estimate(read_plan(given if fraction is None else {**given, "offload": {"optimizer": "cpu"}}))


def of(given: Estimate, account: Account) -> int:
    """Bytes of an account at the end of a step."""
    end = next(one for one in given.ledger.moments if one.name == "step 2: optimizer")
    lines = given.ledger.lines
    return sum(lines[at].unit * count for at, count in end.live if lines[at].account is account)


def test_pieces_go_in_their_order_until_the_share_has_gone() -> None:
    sizes = {"a": 10, "b": 10, "c": 20}
    pieces = [Piece(name, (Axis(Dim.ELEMENTS, size),), Role.MATRIX) for name, size in sizes.items()]
    assert hosted(pieces, 0.5) == (pieces[:2], pieces[2:])
    assert hosted(pieces, 0.6) == (pieces, [])
    assert hosted(pieces, 1.0) == (pieces, [])
    assert hosted(pieces, 0.01) == (pieces[:1], pieces[1:])


def test_the_device_keeps_no_master_weights_or_states_of_what_is_gone() -> None:
    whole, none = answer(), answer(1.0)
    for account in (Account.MASTER, Account.OPTIMIZER):
        assert of(whole, account) > 0
        assert of(none, account) == 0
    assert of(whole, Account.GRADIENTS) == of(none, Account.GRADIENTS)  # the buffer stays
    half = answer(0.5)
    assert 0 < of(half, Account.MASTER) <= of(whole, Account.MASTER) / 2
    assert of(half, Account.MASTER) + sum(
        line.unit * count for line, count in half.ledger.host if line.account is Account.MASTER
    ) == pytest.approx(of(whole, Account.MASTER), rel=0.001)


def test_the_host_keeps_16_bytes_of_each_element_and_more_where_gradients_are_page_locked() -> None:
    device = answer()
    elements = of(device, Account.MASTER) / 4
    assert host_lines(device.ledger) == 0
    assert host_lines(answer(1.0, pinned=False).ledger) == pytest.approx(16 * elements, rel=0.001)
    locked = host_lines(answer(1.0).ledger)
    assert 16 * elements < locked <= 20 * elements


def test_a_16_bit_gradient_is_cast_on_its_way() -> None:
    names = {line.name for line in answer(1.0, gradients="bf16").ledger.lines}
    assert any(name.endswith("on its way") for name in names)
    assert not any(name.endswith("on its way") for name in {line.name for line in answer(1.0).ledger.lines})


def test_only_the_distributed_optimizer_goes_to_the_host() -> None:
    plan = plan_of(LLAMA, parallel={"strategy": "megatron-ddp"}).model_dump(exclude_unset=True)
    with pytest.raises(InputError, match=r"offload\.optimizer"):
        estimate(read_plan({**plan, "offload": {"optimizer": "cpu"}}))
