"""What passes between pipeline stages, and who holds it for how long.

Source: megatron/core/pipeline_parallel/schedules.py, forward_backward_pipelining_{without,with}_interleaving, and
set_input_tensor of the model (0.19.2).
"""

from __future__ import annotations

from collections.abc import Sequence

from trainledger.ledger.mega_passes import Edges
from trainledger.ledger.mega_run import Chunk
from trainledger.lines.actions import Action
from trainledger.lines.stream import Events


class Flow:
    """Hidden states that are received and, once sent, let go; gradients received and sent.

    A model chunk holds its last input, which holds its gradient, until it is given the next one. Without interleaving
    the schedule is one function: the gradient last received, the one last sent, and the output last gone backward,
    whose graph holds its input, keep their names until the next takes it. Where the output layer's weight gradient is
    put off, its input is listed, whose graph holds the stage's input with its gradient until the list is worked off.
    """

    def __init__(self, edges: Edges, chunks: Sequence[Chunk]) -> None:
        self.edges, self.chunks, self.plain = edges, chunks, len(chunks) == 1
        self.out = self.received = 0
        self.sent: Action | None = None  # the backward whose gradient was sent last
        self.graph: Action | None = None  # the backward whose output still has a name
        self.latest: dict[int, int] = {}  # by chunk: the micro-batch that it was last given
        self.parked: dict[int, Action] = {}  # by chunk: the backward of that one, once it is done
        self.listed: list[Action] = []  # backwards whose last product is put off

    def entered(self, action: Action) -> Events:
        """Before a forward: the output of the one before is let go once it was sent; the input is received."""
        chunk = action.chunk
        self.latest[chunk] = action.micro_batch
        if self.chunks[chunk].first:
            return self._gone()
        events = [*self._gone(), self.edges.hidden + 1]
        older = self.parked.pop(chunk, None)
        if older is not None:
            there = older in self.listed
            events += [-self.edges.hidden - 1] * (self.graph != older and not there)
            events += [-self.edges.slope - 1] * (self.sent != older and not there)
        return tuple(events)

    def made(self, action: Action) -> Events:
        """After a forward: an output is to be sent; it takes the name of the one last gone backward."""
        self.out += not self.chunks[action.chunk].last
        return self._ungraphed()

    def before(self, action: Action) -> Events:
        """Before a backward, or before the forward with which it is exchanged: the gradient of the output is received,
        and takes the name of the one before."""
        if self.chunks[action.chunk].last:
            return ()
        older = (-self.edges.slope - 1,) * self.received
        self.received = 1
        return (self.edges.slope + 1, *older)

    def begun(self) -> Events:
        """As a backward begins: without interleaving, the output last made was sent, and is let go."""
        return (*self._gone(), *self._ungraphed()) if self.plain else ()

    def left(self, action: Action) -> Events:
        """After a backward: the gradient of the input takes the name of the one before; the input is let go unless the
        model or a graph holds it still."""
        events = list(self._gone())
        if not self.plain:
            events += [-self.edges.slope - 1] * self.received
            self.received = 0
        if self.chunks[action.chunk].first:
            return tuple(events)
        events += [-self.edges.slope - 1] * (self.sent is not None and not self._held(self.sent))
        self.sent = action
        if self.latest[action.chunk] == action.micro_batch:
            self.parked[action.chunk] = action
        if self.plain:
            self.graph = action
        elif not self._held(action):
            events.append(-self.edges.hidden - 1)
        return tuple(events)

    def ended(self) -> Events:
        """After the step's last backward: the schedule's own names end, and the list is worked off."""
        events = [*self._gone(), *self._ungraphed(), *(-self.edges.slope - 1,) * self.received]
        events += [-self.edges.slope - 1] * (self.sent is not None and not self._held(self.sent))
        self.received, self.sent = 0, None
        listed, self.listed = self.listed, []
        gone = sum(not self._held(one) for one in listed if not self.chunks[one.chunk].first)
        return (*events, *(-self.edges.hidden - 1, -self.edges.slope - 1) * gone)

    def _held(self, action: Action) -> bool:
        return action in self.listed or action in self.parked.values()

    def _ungraphed(self) -> Events:
        held, self.graph = self.graph, None
        return (-self.edges.hidden - 1,) * (held is not None and not self._held(held))

    def _gone(self) -> Events:
        gone = (-self.edges.hidden - 1,) * self.out
        self.out = 0
        return gone
