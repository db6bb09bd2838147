"""What passes between pipeline stages, and who holds it for how long.

Source: megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_{without,with}_interleaving, and
set_input_tensor of the model (0.19.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainledger.ledger.mega_passes import Borders
from trainledger.ledger.mega_run import Chunk
from trainledger.lines.actions import Action

Laned = tuple[tuple[int, int], ...]  # events, each with the lane of the micro-batch whose tensor it is


class Flow:
    """Hidden states that are received and, once sent, let go; gradients received and sent.

    A model chunk holds its last input, which holds its gradient, until it is given the next one. Without interleaving
    the schedule is one function: the gradient last received, the one last sent, and the output last gone backward,
    whose graph holds its input, keep their names until the next takes it. Where the output layer's weight gradient is
    put off, its input is listed, whose graph holds the stage's input with its gradient until the list is worked off.
    `lane`: that of a micro-batch in a chunk.
    """

    def __init__(self, borders: Sequence[Borders], chunks: Sequence[Chunk], lane: Callable[[Action], int]) -> None:
        self.borders, self.chunks, self.plain, self.lane = borders, chunks, len(chunks) == 1, lane
        self.out: Laned = ()  # deaths of outputs that are to be sent
        self.received: Laned = ()  # and of the gradient last received
        self.sent: Action | None = None  # the backward whose gradient was sent last
        self.graph: Action | None = None  # the backward whose output still has a name
        self.latest: dict[int, int] = {}  # by chunk: the micro-batch that it was last given
        self.parked: dict[int, Action] = {}  # by chunk: the backward of that one, once it is done
        self.listed: list[Action] = []  # backwards whose last product is put off

    @property
    def state(self) -> tuple[object, ...]:
        """All that what follows goes by."""
        named, given = (self.received, self.sent, self.graph), (dict(self.latest), dict(self.parked))
        return (self.out, *named, *given, tuple(self.listed))

    def entered(self, action: Action) -> Laned:
        """Before a forward: the output of the one before is let go once it was sent; the input is received."""
        chunk = action.chunk
        self.latest[chunk] = action.micro_batch
        if self.chunks[chunk].first:
            return self._gone()
        came = self.borders[chunk].came
        events = [*self._gone(), (came.hidden + 1, self.lane(action))]
        older = self.parked.pop(chunk, None)
        if older is not None:
            there = older in self.listed
            events += [(-came.hidden - 1, self.lane(older))] * (self.graph != older and not there)
            events += [(-came.slope - 1, self.lane(older))] * (self.sent != older and not there)
        return tuple(events)

    def made(self, action: Action) -> Laned:
        """After a forward: an output is to be sent; it takes the name of the one last gone backward."""
        goes = self.borders[action.chunk].goes
        self.out += ((-goes.hidden - 1, self.lane(action)),) * (not self.chunks[action.chunk].last)
        return self._ungraphed()

    def before(self, action: Action) -> Laned:
        """Before a backward, or before the forward with which it is exchanged: the gradient of the output is received,
        and takes the name of the one before."""
        if self.chunks[action.chunk].last:
            return ()
        older, slope = self.received, self.borders[action.chunk].goes.slope
        lane = -self.lane(action)  # not that of the gradient which the same backward makes, another copy of the line
        self.received = ((-slope - 1, lane),)
        return ((slope + 1, lane), *older)

    def begun(self) -> Laned:
        """As a backward begins: without interleaving, the output last made was sent, and is let go."""
        return (*self._gone(), *self._ungraphed()) if self.plain else ()

    def left(self, action: Action) -> Laned:
        """After a backward: the gradient of the input takes the name of the one before; the input is let go unless the
        model or a graph holds it still."""
        events = list(self._gone())
        if not self.plain:
            events += self.received
            self.received = ()
        if self.chunks[action.chunk].first:
            return tuple(events)
        events += self._unsent()
        self.sent = action
        if self.latest[action.chunk] == action.micro_batch:
            self.parked[action.chunk] = action
        if self.plain:
            self.graph = action
        elif not self._held(action):
            events.append((-self.borders[action.chunk].came.hidden - 1, self.lane(action)))
        return tuple(events)

    def ended(self) -> Laned:
        """After the step's last backward: the schedule's own names end, and the list is worked off."""
        events = [*self._gone(), *self._ungraphed(), *self.received, *self._unsent()]
        self.received, self.sent = (), None
        listed, self.listed = self.listed, []
        gone = [one for one in listed if not self.chunks[one.chunk].first and not self._held(one)]
        return (*events, *((event, self.lane(one)) for one in gone for event in self.input_gone(one.chunk)))

    def input_gone(self, chunk: int) -> tuple[int, int]:
        """Deaths of a chunk's input and its gradient."""
        came = self.borders[chunk].came
        return (-came.hidden - 1, -came.slope - 1)

    def _unsent(self) -> Laned:
        """The gradient last sent, unless the model holds it still."""
        if self.sent is None or self._held(self.sent):
            return ()
        return ((-self.borders[self.sent.chunk].came.slope - 1, self.lane(self.sent)),)

    def _held(self, action: Action) -> bool:
        return action in self.listed or action in self.parked.values()

    def _ungraphed(self) -> Laned:
        held, self.graph = self.graph, None
        if held is None or self._held(held):
            return ()
        return ((-self.borders[held.chunk].came.hidden - 1, self.lane(held)),)

    def _gone(self) -> Laned:
        gone, self.out = self.out, ()
        return gone
