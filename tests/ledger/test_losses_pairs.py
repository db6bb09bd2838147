"""Losses over chosen and rejected sequences: what they make of the logits, forward and backward."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16
from trainledger.ledger.engine import Backward
from trainledger.ledger.losses_pairs import CHOSEN, pair_loss
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward

PAIRS, TOKENS, WORDS = 2, 64, 4096
WHOLE = 2 * PAIRS * TOKENS * WORDS * 4  # fp32 logits of both
HALF = PAIRS * (TOKENS - 1) * WORDS * 4  # of one of the two, without the last token


def written(task: str, pairs: int = PAIRS) -> tuple[Tape, int, dict[str, int], dict[int, int], list[int]]:
    tape = Tape(None)
    dims = (Axis(Dim.BATCH, 2 * pairs), Axis(Dim.SEQUENCE, TOKENS), Axis(Dim.VOCAB, WORDS))
    names = {"logits": tape.outside(dims, BF16, True)}
    loss = pair_loss(tape, names, task)
    forward = run_forward(tape, frozenset({loss, *names.values()}), True)
    return tape, loss, names, forward.held, forward.events


@pytest.mark.parametrize(("task", "logs"), [("simpo", 2), ("orpo", 3)])
def test_log_probabilities_are_kept(task: str, logs: int) -> None:
    tape, _, names, held, _ = written(task)
    sizes = [tape.storages[one].size for one in held if one != EXTERNAL]
    assert sizes.count(HALF) == logs
    assert (CHOSEN in names) == (task == "orpo")
    assert tape.dims[names["logits"]][0].size == 2 * PAIRS


def test_rows_of_several_sequences_are_copied_for_the_kernel() -> None:
    for pairs, copies in ((PAIRS, 2), (1, 0)):
        tape, _, _, _, events = written("simpo", pairs)
        assert sum("contiguous" in tape.storages[event - 1].name for event in events if event > 0) == copies


def test_backward_fills_both_halves_into_whole_gradients() -> None:
    tape, loss, names, held, _ = written("simpo")
    back = Backward(tape, dict(held), frozenset(tape.store[value] for value in (loss, *names.values())))
    back.seed(loss, "gradient of the loss")
    back.run(0, len(tape.prims))
    made = [tape.storages[event - 1].size for event in back.events if event > 0]
    assert made.count(WHOLE) == 2  # one from each half; the second is added to the first
    assert made.count(HALF) == 4  # of what is picked and of the log-probabilities, for each
