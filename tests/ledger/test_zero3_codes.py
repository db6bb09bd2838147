"""Weights gathered in 8 bits."""

from __future__ import annotations

import pytest

from tests.ledger.test_wrapper import RANKS, run
from tests.plans import LLAMA
from trainledger.base.dims import Axis, Dim
from trainledger.facts.deepspeed import QUANTIZER
from trainledger.facts.dtypes import BF16
from trainledger.ledger.book import Book
from trainledger.ledger.rank import payload
from trainledger.ledger.registered import Slot
from trainledger.ledger.zero3_codes import Coded, Codes
from trainledger.ledger.zero3_gathered import Fetching
from trainledger.model.program import Weight

SIZE = 64_000
A, B = (Slot(at, "", Weight(name, (Axis(Dim.ELEMENTS, SIZE),)), SIZE) for at, name in enumerate("ab"))
HOW = Fetching(4, BF16, 0, 10**9, 0, 0, True, False, 0, False, False)


class Played:
    """Codes of two weights over four ranks, and the bytes that events leave, now and at most."""

    def __init__(self, codes: Codes) -> None:
        self.book = Book()
        self.gathered = Coded(self.book, HOW, codes)
        self.live: list[int] = []
        self.high = 0

    def play(self, events: list[int]) -> int:
        self.high = 0
        for event in events:
            if event > 0:
                self.live.append(event - 1)
            else:
                self.live.remove(-event - 1)
            self.high = max(self.high, self.bytes())
        return self.bytes()

    def bytes(self) -> int:
        return sum(payload(self.book.lines[line]) for line in self.live)


@pytest.mark.parametrize(
    ("size", "groups"), [(8, 1), (8000, 1), (8008, 7), (16_000, 2), (512, 1), (8 * 10_007, 10_007), (2**20, 2**8)]
)
def test_groups_are_as_few_as_divide_into_units_of_eight(size: int, groups: int) -> None:
    assert QUANTIZER.groups(size) == groups
    assert size % (8 * groups) == 0


def test_what_is_no_multiple_of_eight_cannot_be_coded() -> None:
    with pytest.raises(ValueError, match="no multiple of 8"):
        QUANTIZER.groups(12)


@pytest.mark.parametrize("cast", [False, True])
def test_one_weight_is_codes_until_it_is_waited_for(cast: bool) -> None:
    one = Played(Codes(cast, cast))
    part = SIZE // 4
    scales = 4 * QUANTIZER.groups(part)
    codes = SIZE + 4 * scales  # of all ranks
    assert one.play(one.gathered.gather((A,))) == codes + part + scales
    assert one.high == codes + part + scales + (2 * part - 4 * scales if cast else 0)
    assert one.play(one.gathered.wait(A)) == 2 * SIZE
    assert one.high == codes + 2 * SIZE + (2 * SIZE if cast else 0)
    assert one.play(one.gathered.release(A)) == 0


@pytest.mark.parametrize("cast", [False, True])
def test_several_are_copied_out_of_the_values_of_all_codes(cast: bool) -> None:
    one = Played(Codes(cast, cast))
    part = 2 * SIZE // 4
    scales = 4 * QUANTIZER.groups(part)
    shared = 2 * SIZE + 4 * scales + 2 * 2 * SIZE  # codes, scales, values
    one.play(one.gathered.gather((A, B)))
    assert one.play(one.gathered.wait(A)) == shared + 2 * 2 * SIZE
    assert one.high == shared + 2 * 2 * SIZE + (2 * SIZE if cast else 0)
    assert one.play(one.gathered.wait(B)) == 2 * 2 * SIZE
    assert one.play([*one.gathered.release(A), *one.gathered.release(B)]) == 0


def test_past_the_coordinator_weights_are_gathered_as_they_are() -> None:
    one = Played(Codes(True, True))
    assert one.play(one.gathered.plainly((A,))) == one.high == 2 * SIZE


@pytest.mark.parametrize(("version", "counted"), [("0.9.5", False), ("0.10.0", True), ("0.19.8", True)])
def test_a_run_gathers_codes_in_releases_that_know_them(version: str, counted: bool) -> None:
    model = {**LLAMA, "hidden_size": 512}
    options = {"zero_quantized_weights": True, "stage3_prefetch_bucket_size": 10**6}
    _, ledger = run("zero3", version, model, parallel={"options": options})
    names = {line.name for line in ledger.lines}
    assert ("codes of gathered weights" in names) is counted
    cast = "parts to code" in names
    assert cast is (version == "0.19.8")
    assert RANKS == 8
