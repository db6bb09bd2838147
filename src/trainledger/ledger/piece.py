"""A piece of the model with its edges, and which line of the ledger each of its storages is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trainledger.ledger.book import Book
from trainledger.ledger.tape import EXTERNAL, Storage, Tape, over_vocabulary
from trainledger.ledger.visits import Call
from trainledger.lines.line import Account


@dataclass(frozen=True, slots=True)
class Piece:
    """A tape with its edges: input and output values, outside values by name, and the lines of what passes edges.

    `known`: lines of storages shared with other pieces; `arriving` and `leaving`: lines of the output's and of the
    input's gradient; `source` is EXTERNAL where nothing comes in that needs a gradient. `leaf`: a value that was made
    to need a gradient, so that the graph holds it and it holds its gradient: both outlive the piece (EXTERNAL: none).
    `calls`: its operations. `passed`: names of the gradients of values that are another piece's, which it takes last.
    `bound`: how many primitives had run as a caller's name was bound to results (0: none was).
    """

    tape: Tape
    source: int
    target: int
    prefix: str
    known: dict[int, int]
    arriving: int
    leaving: int
    outside: dict[int, str]
    leaf: int = EXTERNAL
    calls: Sequence[Call] = ()
    passed: Mapping[int, str] = field(default_factory=dict)
    bound: int = 0

    @property
    def staying(self) -> frozenset[int]:
        """Values that outlive the backward: the leaf, and what nodes of the graph hold as their own attributes."""
        return frozenset({self.leaf, *self.tape.attached} - {EXTERNAL})


class PieceLines:
    """Which line each storage of a piece is, by the walk in which it is born. Two that live at once have lines of their
    own, so that an event says which of them dies."""

    __slots__ = ("accounts", "again", "alive", "book", "known", "piece", "savers", "work")

    def __init__(self, book: Book, piece: Piece) -> None:
        self.book, self.piece = book, piece
        self.known = dict(piece.known)
        self.work = Account.FORWARD
        self.accounts: dict[int, Account] = {}
        self.savers: dict[int, list[str]] | None = None
        self.alive: set[int] = set()
        self.again: set[int] = set()  # storages that are made once more after they died: another line's from then on

    def read(self, events: Iterable[int]) -> tuple[int, ...]:
        """A tape's events with storages replaced by lines."""
        found: list[int] = []
        known, alive = self.known, self.alive  # looked up here: this runs for every event of every piece
        for event in events:
            storage = event - 1 if event > 0 else -event - 1
            line = known[storage] if storage in known else self.of(storage)
            if event > 0:
                alive.add(line)
                found.append(line + 1)
            else:
                alive.discard(line)
                found.append(-line - 1)
                if storage in self.again:
                    self.again.discard(storage)
                    known.pop(storage, None)
        return tuple(found)

    def of(self, storage: int) -> int:
        """The line of a storage; made at its first birth."""
        number = self.known.get(storage)
        if number is None:
            account = self.accounts.get(storage, self.work)
            made = self.piece.tape.storages[storage]
            shown = Account.LOGITS if account is not Account.CASTS and over_vocabulary(made.dims) else account
            number = self.known[storage] = self._free(shown, made, lambda: self._why(account, storage))
        return number

    def _free(self, account: Account, made: Storage, why: Callable[[], str]) -> int:
        """The first line of this name whose tensor is not alive in this piece."""
        plain = name = self.piece.prefix + made.name
        copies = 1
        while (number := self.book.number(account, name, made.size)) in self.alive:
            copies += 1
            name = f"{plain} ({copies})"
        return self.book.storage(account, name, made, why()) if number is None else number

    def _why(self, account: Account, storage: int) -> str:
        if account is Account.FORWARD:
            return "alive only while its operation, or the Python that calls it, runs forward"
        if account is Account.BACKWARD:
            return "alive only while gradients pass through its operation"
        if account is Account.CASTS and storage not in self._savers():
            return "held by autocast's cache until its region ends"
        return f"kept for the backward of {', '.join(dict.fromkeys(self._savers().get(storage, ())))}"

    def _savers(self) -> dict[int, list[str]]:
        """The primitives that save each storage, by name."""
        if self.savers is None:
            self.savers = {}
            for prim in self.piece.tape.prims:
                for value in prim.saves:
                    self.savers.setdefault(self.piece.tape.store[value], []).append(prim.kind)
        return self.savers

    def phase(self, held: dict[int, int], kept: Account, work: Account) -> None:
        """Storages born from now on: those in `held` belong to `kept`, others to `work`."""
        cached = {self.piece.tape.store[value] for value in self.piece.tape.cached.values()}
        self.accounts = dict.fromkeys(held, kept)
        self.accounts.update(dict.fromkeys(cached, Account.CASTS))
        self.work = work
