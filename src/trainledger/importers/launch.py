"""How many processes a launcher starts: torchrun's options, srun's, and the variables that scripts use for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainledger.base.problems import InputError, Problem
from trainledger.facts.import_launch import NODES, PER_NODE, TASKS_PER_NODE
from trainledger.importers.launch_counts import counted, option_name
from trainledger.importers.piece import Piece
from trainledger.importers.shell_words import Word

BARE = frozenset(
    "--standalone --no-python --no_python -m --module --run-path --run_path --rdzv-disable --exclusive".split()
)


@dataclass(frozen=True, slots=True)
class Launch:
    """Processes of a node, and nodes, as they were written; None where they were not."""

    per_node: Word | None = None
    nodes: Word | None = None

    def over(self, other: Launch) -> Launch:
        """This one, with what it does not say taken from another."""
        return Launch(self.per_node or other.per_node, self.nodes or other.nodes)


NO_LAUNCH = Launch()


def only_run(places: Sequence[str]) -> None:
    """Raises InputError where a script starts runs at several places."""
    if len(places) > 1:
        found = f"{len(places)} runs, at {' and '.join(places)}"
        raise InputError([Problem("", found, "one run is estimated at a time", "Keep one.")])


def launched(words: Sequence[Word]) -> tuple[Launch, tuple[Word, ...]]:
    """A launcher's options at the start of these words, and the words from the first one that is no option."""
    per_node, nodes, at = None, None, 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.text.partition("=")
        if not name.startswith("-"):
            break
        held = Word(value, word.where, word.known) if equals else None
        at += 1
        if held is None and name not in BARE and at < len(words):
            held = words[at]
            at += 1
        per_node = held if option_name(name) in (*PER_NODE, *TASKS_PER_NODE) else per_node
        nodes = held if option_name(name) in NODES else nodes
    return Launch(per_node, nodes), tuple(words[at:])


def launch_of(words: Sequence[Word]) -> Launch:
    """What the launchers before a program say: `srun --nodes 2 torchrun --nproc_per_node 8`; the nearest one counts."""
    found = NO_LAUNCH
    for start, word in enumerate(words):
        if not word.text.startswith("-"):
            found = launched(words[start + 1 :])[0].over(found)
    return found


def ranks(launch: Launch, piece: Piece) -> tuple[int, str] | None:
    """All processes and where that is said; None where it is not known, which is noted when it was written."""
    found = 1
    for word in (launch.per_node, launch.nodes):
        if word is None:
            continue
        count = counted(word.text)
        if count is None:
            piece.refuse(
                "parallel.world",
                f"{word.text} processes",
                "a number is needed",
                "Give it: --env NAME=VALUE, or a number in the script.",
                word.where,
            )
            return None
        found *= count
    given = launch.per_node or launch.nodes
    return (found, given.where) if given is not None and launch.per_node is not None else None
