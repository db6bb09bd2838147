"""Actions of a pipeline rank, and what they keep in flight."""

from __future__ import annotations

from trainledger.lines.actions import Action, Flight, InFlight, Kind, Recorder, flights, in_flight

F, B, I, W = Kind.FORWARD, Kind.BACKWARD, Kind.INPUT, Kind.WEIGHT  # noqa: E741


def test_micro_batches_pass_through_a_chunk_in_order() -> None:
    recorder = Recorder()
    recorder.forward(0)
    recorder.forward(1)
    recorder.forward(0)
    recorder.backward(1)
    recorder.input(0)
    recorder.backward(0)
    assert [str(one) for one in recorder.actions] == ["F0.0", "F0.1", "F1.0", "B0.1", "I0.0", "B1.0"]
    assert recorder.done(F, 0) == 2
    assert recorder.done(B, 0) == 2


def test_weight_gradients_that_were_put_off_come_first_in_first_out() -> None:
    recorder = Recorder()
    for chunk in (1, 0, 1):
        recorder.input(chunk)
    recorder.weight(0)
    recorder.weight()
    recorder.weights()
    recorder.weight()
    assert recorder.actions[3:] == (Action(W, 0, 0), Action(W, 0, 1), Action(W, 1, 1))


def test_what_is_held_after_every_action() -> None:
    done = (Action(F, 0, 0), Action(F, 0, 1), Action(I, 0, 1), Action(B, 0, 0), Action(W, 0, 1))
    states = [flight for _, flight in flights(done)]
    assert states == [
        Flight((1, 0), (0, 0)), Flight((1, 1), (0, 0)), Flight((1, 0), (0, 1)), Flight((0, 0), (0, 1)),
        Flight((0, 0), (0, 0)),
    ]  # fmt: skip
    assert [state.held for state in states] == [1, 2, 2, 1, 0]
    assert in_flight(done) == InFlight(most=2, by_chunk=(1, 1), pending=1, held=2)


def test_nothing_done_holds_nothing() -> None:
    assert in_flight(()) == InFlight(0, (0,), 0, 0)
