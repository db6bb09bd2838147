"""DualPipe, DualPipeV and ZB-V: their own rules beside those that all schedules share."""

from __future__ import annotations

import pytest

from trainledger.facts.pipelines import PAIRED, VEE
from trainledger.lines.actions import Action, Kind
from trainledger.lines.schedules_paired import paired, vee


def written(actions: tuple[Action, ...]) -> str:
    return " ".join(map(str, actions))


def test_dualpipe_by_hand_on_two_ranks() -> None:
    first, last = (paired(PAIRED["dualpipe"], 2, rank, 4) for rank in (0, 1))
    assert written(first) == "F0.0 F2.1 F1.0 B2.1 F3.1 B0.0 B3.1 I1.0 W1.0"
    assert written(last) == "F2.1 F0.0 F3.1 B0.0 F1.0 B2.1 B1.0 I3.1 W3.1"


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_dualpipes_second_half_mirrors_the_first(ranks: int) -> None:
    count = 3 * ranks
    for rank in range(ranks // 2):
        near, far = (paired(PAIRED["dualpipe"], ranks, one, count) for one in (rank, ranks - 1 - rank))
        mirrored = [(one.kind, (one.micro_batch + count // 2) % count, 1 - one.chunk) for one in far]
        assert mirrored == [tuple(one) for one in near]


def test_dualpipev_by_hand_on_one_rank() -> None:
    assert written(paired(PAIRED["dualpipev"], 1, 0, 2)) == "F0.0 F0.1 F1.0 B0.1 F1.1 B0.0 B1.1 I1.0 W1.0"


def test_zb_v_leaves_out_the_micro_batches_that_there_are_not() -> None:
    few = vee(VEE, 4, 0, 2)
    assert {one.micro_batch for one in few} == {0, 1}
    assert few == tuple(one for one in vee(VEE, 4, 0, 7) if one.micro_batch < 2)


def test_zb_v_puts_off_only_at_the_end() -> None:
    done = vee(VEE, 4, 3, 8)
    inputs = [at for at, one in enumerate(done) if one.kind is Kind.INPUT]
    late = [at for at in inputs if done[at + 1].kind is not Kind.WEIGHT]
    assert late == inputs[-7:-1]
