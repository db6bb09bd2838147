"""PyTorch's collectives as primitives: what lies beside what."""

from __future__ import annotations

import pytest

from tests.plans import plan_of
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16
from trainledger.ledger.frame import Frame
from trainledger.ledger.rules_parallel import SCATTERED, apply
from trainledger.ledger.run import run_of
from trainledger.ledger.tape import Tape
from trainledger.model.operations_parallel import Collective, Copied, Gathered, Summed


def written(spec: Collective, batch: int = 1, torch: str = "2.14.1") -> tuple[Tape, int, int]:
    plan = plan_of(batch={"micro_batch": batch, "sequence": 64}, stack={"versions": {"torch": torch}})
    frame = Frame(Tape(), run_of(plan, "sm80").setting, {}, lambda weight: True, {})
    dims = (Axis(Dim.BATCH, batch), Axis(Dim.SEQUENCE, 64), Axis(Dim.HIDDEN, 32))
    x = frame.tape.inherit(dims, BF16, True, "x")
    return frame.tape, x, apply(frame, spec, x)


@pytest.mark.parametrize(("batch", "torch", "copies"), [(1, "2.14.1", 1), (2, "2.14.1", 2), (1, "2.9.0", 2)])
def test_a_gather_is_copied_into_order_but_for_one_sequence_in_newer_releases(
    batch: int, torch: str, copies: int
) -> None:
    tape, x, out = written(Gathered(4, Dim.SEQUENCE), batch, torch)
    assert tape.dims[out][1].size == 4 * 64
    assert len({tape.store[value] for prim in tape.prims for value in prim.outs}) == copies
    assert out in tape.wrapped
    assert tape.store[x] != tape.store[out]


def test_a_sum_that_is_spread_is_copied_by_parts_first() -> None:
    tape, _, out = written(Summed(4, True))
    assert tape.dims[out][1].size == 64 // 4
    assert [prim.kind for prim in tape.prims] == ["chunk, cat", SCATTERED]


def test_a_sum_that_is_not_is_a_tensor_of_its_own() -> None:
    tape, x, out = written(Summed(4, False))
    assert tape.dims[out] == tape.dims[x]
    assert tape.store[out] != tape.store[x]


def test_what_every_rank_has_is_no_copy_until_its_gradient_is_added_up() -> None:
    tape, x, out = written(Copied())
    assert tape.store[out] == tape.store[x]


def test_logits_are_gathered_along_words() -> None:
    tape, _, out = written(Gathered(2, Dim.HIDDEN))
    assert tape.dims[out][-1].size == 2 * 32
