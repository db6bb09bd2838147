"""How FSDP2 comes to its parts."""

from __future__ import annotations

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate


@pytest.mark.parametrize(("tied", "times"), [(True, 2), (False, 1)])
def test_tied_weights_are_made_once_for_each_name(tied: bool, times: int) -> None:
    model = {**LLAMA, "tie_word_embeddings": tied}
    ledger = estimate(plan_of(model, parallel={"strategy": "fsdp2", "dp": 4})).ledger
    line = next(at for at, one in enumerate(ledger.lines) if one.name == "model.embed_tokens.weight")
    events = [event for one in ledger.segments if one.moment == "init" for event in one.events * one.repeat]
    assert [events.count(line + 1), events.count(-line - 1)] == [times, times - 1]
