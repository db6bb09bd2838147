"""The loss with smoothed labels: what autograd keeps of it, and what its backward makes."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, DType
from trainledger.ledger.engine import Backward
from trainledger.ledger.losses_smoothed import smoothed
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward

DIMS = (Axis(Dim.BATCH, 2), Axis(Dim.SEQUENCE, 64), Axis(Dim.VOCAB, 4096))


@pytest.mark.parametrize(("dtype", "gradients"), [(FP32, 4), (BF16, 4)])
def test_log_probabilities_are_kept_twice(dtype: DType, gradients: int) -> None:
    tape = Tape(None)
    loss, *names = smoothed(tape, tape.outside(DIMS, dtype, True))
    tape.end(names)
    forward = run_forward(tape, frozenset({loss}), True)
    whole = 2 * 64 * 4096 * dtype.bits // 8
    sizes = [tape.storages[one].size for one in forward.held if one != EXTERNAL]
    assert sizes.count(whole) == 2
    back = Backward(tape, dict(forward.held), frozenset({tape.store[loss]}))
    back.seed(loss, "gradient of the loss")
    back.run(0, len(tape.prims))
    made = [tape.storages[event - 1] for event in back.events if event > 0]
    # of what is picked, of the sum (in fp32 one number a token, until both are added), of the sign and of the logits
    assert [one.size for one in made].count(whole) == gradients
    assert ("sum of gradients" in {one.name for one in made}) == (dtype == FP32)
