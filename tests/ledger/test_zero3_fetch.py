"""ZeRO-3's coordinator: gathers as lines, the trace, what is fetched ahead, kept and let go."""

from __future__ import annotations

from typing import Any

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16
from trainledger.ledger.book import Book
from trainledger.ledger.registered import Slot
from trainledger.ledger.zero3_fetch import Coordinator, Mode
from trainledger.ledger.zero3_gathered import Fetching, Gathered
from trainledger.model.program import Weight

A, B, C = (Slot(at, "", Weight(name, (Axis(Dim.ELEMENTS, 1000),)), 1000) for at, name in enumerate("abc"))


class Played:
    """A coordinator over three modules, and the bytes that its events leave."""

    def __init__(self, **changes: Any) -> None:
        given: dict[str, Any] = {
            "ranks": 3, "dtype": BF16, "prefetch": 0, "live": 10**6, "reuse": 0, "persistence": 0,
            "overlap": True, "offload": False, "second": 0, "saved": False, "remade": False,
        }  # fmt: skip
        self.book = Book()
        how = Fetching(**{**given, **changes})
        self.order = Coordinator(how, Gathered(self.book, how))
        self.live: list[int] = []

    def play(self, events: list[int]) -> None:
        for event in events:
            if event > 0:
                self.live.append(event - 1)
            else:
                self.live.remove(-event - 1)

    def names(self) -> list[str]:
        return sorted(self.book.lines[line].name for line in self.live)

    def fetch(self, *slots: Slot) -> list[str]:
        self.play(self.order.fetch(slots))
        return self.names()

    def leave(self, *slots: Slot) -> list[str]:
        self.play(self.order.leave(slots, True))
        return self.names()

    def micro(self) -> None:
        self.play(self.order.start())
        for slot in (A, B, C):
            self.fetch(slot)
            self.leave(slot)


def test_the_first_micro_batch_fetches_nothing_ahead() -> None:
    one = Played(prefetch=10**6)
    one.play(one.order.start())
    assert one.order.mode is Mode.RECORDS
    assert one.fetch(A) == ["a (whole)"]
    assert one.leave(A) == []


def test_a_single_weight_is_gathered_padded_and_in_place() -> None:
    one = Played()
    one.play(one.order.start())
    one.fetch(A)
    (line,) = (one.book.lines[number] for number in one.live)
    assert line.dims == (Axis(Dim.ELEMENTS, 1002),)
    assert line.use.stream > 0


def test_several_are_gathered_flat_and_copied_when_the_first_is_waited_for() -> None:
    one = Played(prefetch=1500)
    one.micro()
    one.play(one.order.start())
    assert one.fetch(A) == ["2 weights gathered at once", "a (whole)"]
    assert one.leave(A) == ["2 weights gathered at once"]
    assert one.fetch(B) == ["2 weights gathered at once", "b (whole)", "c (whole)"]
    one.leave(B)
    assert one.fetch(C) == ["c (whole)"]


def test_a_fetch_ahead_may_overshoot_by_one_and_stops_where_no_room_is_left() -> None:
    for live, ahead in ((10**6, ["b (whole)"]), (1000, [])):
        one = Played(prefetch=1, live=live)
        one.micro()
        one.play(one.order.start())
        assert one.fetch(A) == ["a (whole)", *ahead]


def test_a_weight_that_is_used_again_within_the_distance_stays() -> None:
    for reuse, left in ((2001, ["a (whole)"]), (2000, [])):
        one = Played(reuse=reuse)
        for _ in range(2):
            one.play(one.order.start())
            for slot in (A, B, C, A):
                one.fetch(slot)
                if slot is A and one.order.mode is Mode.COMPLETE and one.order.step == 1:
                    assert one.leave(A) == left
                else:
                    one.leave(slot)


def test_small_weights_stay_from_the_second_micro_batch_on_until_the_step() -> None:
    for persistence, stay in ((999, []), (1000, ["a (whole)", "b (whole)", "c (whole)"])):
        one = Played(persistence=persistence)
        one.micro()
        assert one.names() == []
        one.micro()
        assert one.names() == stay
        one.play(one.order.close((A, B, C)))
        assert one.names() == []


def test_a_micro_batch_that_repeats_leaves_the_state_that_it_found() -> None:
    one = Played(persistence=1000)
    states = []
    for _ in range(4):
        states.append(one.order.state)
        one.micro()
    assert states[0] != states[1] != states[2] == states[3]


def test_a_second_part_is_kept_from_forward_to_the_step() -> None:
    one = Played(second=2)
    one.micro()
    assert one.names() == ["second part of a", "second part of b", "second part of c"]
    one.play(one.order.close((A, B, C)))
    assert one.names() == []


def test_parts_on_the_host_pass_through_the_device() -> None:
    one = Played(offload=True)
    one.play(one.order.start())
    events = one.order.fetch((A,))
    assert [one.book.lines[abs(event) - 1].name for event in events] == ["part of a", "part of a", "a (whole)"]


def test_what_is_under_way_as_a_micro_batch_begins_goes() -> None:
    one = Played(prefetch=10**6)
    one.micro()
    one.play(one.order.start())
    one.fetch(A)
    one.play(one.order.start())
    one.play(one.order.close((A, B, C)))
    assert one.names() == []


def test_a_node_holds_the_tensor_that_it_saved_until_it_has_run() -> None:
    one = Played(saved=True)
    one.play(one.order.start())
    one.fetch(A)
    one.order.gathered.save(A)
    assert one.leave(A) == ["a (whole)"]
    assert one.fetch(A) == ["a (whole)", "a (whole)"]
    one.play(one.order.gathered.forget(A))
    assert one.names() == ["a (whole)"]
    assert one.order.gathered.forget(A) == []
    assert one.leave(A) == []


def test_a_tensor_that_is_still_gathered_is_not_let_go_by_its_node() -> None:
    one = Played(saved=True)
    one.play(one.order.start())
    one.fetch(A)
    one.order.gathered.save(A)
    assert one.order.gathered.forget(A) == []
    assert one.leave(A) == []


def test_what_nodes_hold_is_part_of_what_a_micro_batch_leaves() -> None:
    one = Played(saved=True)
    one.play(one.order.start())
    states = [one.order.gathered.state]
    one.fetch(A)
    states.append(one.order.gathered.state)
    one.order.gathered.save(A)
    states.append(one.order.gathered.state)
    one.leave(A)
    states.append(one.order.gathered.state)
    assert len(set(states)) == len(states)
    one.play(one.order.gathered.forget(A))
    assert one.order.gathered.state == states[0]
