"""Pieces in their order, with what lies around and inside them."""

from __future__ import annotations

from collections.abc import Mapping

from trainledger.ledger.arrange import Hooks, Pieces, arranged
from trainledger.ledger.blocks import Arrived, Walked
from trainledger.lines.stream import Events


def piece(forward: Events, backward: Events, product: int = 0) -> Walked:
    return Walked(forward, backward, (), frozenset(), frozenset(), True, True, (0, product))


class Numbered(Hooks):
    """Marks every place by a number of its own."""

    def ahead(self, at: int) -> Events:
        return (100 + at,)

    def passed(self, at: int) -> Events:
        return (200 + at,)

    def behind(self, at: int) -> Events:
        return (300 + at,)

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        return {1: (400 + at,)}

    def done(self, at: int, arrived: tuple[Arrived, ...]) -> Events:
        return (500 + at,)

    def ended(self) -> Events:
        return (600,)


LAYER = piece((1,), (2, 3), 2)
PIECES = Pieces(piece((10,), (11,)), (LAYER, LAYER, LAYER), piece((20,), (21, 22), 1), 7, {})


def test_hooks_are_asked_around_every_piece_in_the_order_in_which_they_run() -> None:
    found = arranged(PIECES, (), Numbered())
    ahead = [event for _, events, repeat, _ in found.forward for event in events * repeat]
    assert ahead == [100, 10, 200, 101, 1, 201, 102, 1, 202, 103, 1, 203, 104, 20, 204]
    behind = [event for _, events, repeat, _ in found.backward for event in events * repeat]
    head = [304, 8, 21, 404, 22, 504]
    layers = [event for at in (3, 2, 1) for event in (300 + at, 2, 400 + at, 3, 500 + at)]
    assert behind == [*head, *layers, 300, 11, 400, 500, 600, -8]


def test_equal_layers_are_written_once_and_counted() -> None:
    found = arranged(PIECES, (), Hooks())
    assert [(events, repeat) for _, events, repeat, _ in found.forward[:2]] == [((10,), 1), ((1,), 3)]
    moments = [segment.moment for segment in found.backward if segment.events]
    assert moments == [
        "backward of the loss", "backward of layer 2", "backward of layer 1", "backward of layer 0",
        "backward of the embedding",
    ]  # fmt: skip


def test_the_place_of_the_first_product_moves_with_what_is_put_before_it() -> None:
    """In a layer's backward it is the second event, before which one was put, and one inside."""
    found = arranged(PIECES, (), Numbered())
    layer = next(segment for segment in found.backward if segment.moment == "backward of layer 1")
    assert layer.events[found.products[layer.events] - 1] == 3
