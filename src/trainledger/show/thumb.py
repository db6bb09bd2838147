"""The rule of thumb as sections of text."""

from __future__ import annotations

from trainledger.answer.thumb import Thumb
from trainledger.base.units import format_count
from trainledger.show.document import Origin
from trainledger.show.estimate import View, verdict_section
from trainledger.show.table import Section


def sections(found: Thumb, units: str, origin: Origin) -> tuple[Section, ...]:
    """Everything that `estimate --quick` prints, labelled as what it is."""
    view, given, answer = View(units), found.given, found.answer
    copies = ", ".join(f"{copy.value} {dtype.name}" for copy, dtype in found.recipe.copies)
    rows = (
        ("model states", view.size(answer.states), f"{copies}; {given.strategy} over {given.ranks:,}"),
        ("activations", view.size(answer.activations), f"{given.layers:,} layers of the published row"),
        ("low", view.size(answer.low), "and 10 % for buffers, workspace, fragments"),
        ("expected", view.size(answer.expected), "the middle"),
        ("high", view.size(answer.high), "and 30 %"),
    )
    shape = f"{given.layers:,} layers, hidden {given.hidden:,}, {given.heads:,} heads"
    tokens = f"{given.micro_batch} x {given.sequence:,} tokens"
    return (
        Section(
            "Rule of thumb, not the ledger: states + activations + 10 to 30 %",
            (
                f"{format_count(given.parameters)} parameters, {shape}, {tokens}",
                f"activations row {given.activations!r}, tensor-parallel {given.tensor}",
                f"global batch {found.global_batch:,}",
            ),
        ),
        verdict_section(found.verdict, view, origin),
        Section("One rank", (), ("", "bytes", "of what"), rows, (1,)),
        Section("Sources", tuple(f"- {source}" for source in answer.sources)),
    )
