"""What Megatron-Core's schedules keep of each micro-batch's loss: its value until its backward has run, and what is
reported of it, a sum and a count of tokens, in a list until the step has ended.

Source: megatron/core/pipeline_parallel/schedules.py, forward_step_calc_loss, forward_data_store; pretrain_gpt.py,
loss_func (0.19).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32
from trainledger.facts.megatron import REPORT
from trainledger.ledger.book import Book
from trainledger.ledger.mega_order import order_of
from trainledger.ledger.mega_passes import Pass
from trainledger.ledger.mega_run import Chunk, Rank
from trainledger.ledger.updates import Runs, births, deaths
from trainledger.lines.line import Account
from trainledger.lines.moments import BACKWARD, FORWARD, LOSS
from trainledger.lines.pipeline import pipeline_of
from trainledger.lines.stream import Segment


@dataclass(frozen=True, slots=True)
class Reports:
    """The reports of a rank: their line (none on a rank without the loss), how many are made in a step, and of how many
    the step is written out: the rounds that are left out have made theirs before."""

    book: Book
    line: int | None
    count: int
    written: int

    @staticmethod
    def of(rank: Rank) -> Reports:
        """Those of a rank."""
        book, dims = rank.job.book, (Axis(Dim.ELEMENTS, REPORT.numbers),)
        if not any(chunk.last for chunk in rank.chunks):
            return Reports(book, None, 0, 0)
        line = book.tensor(Account.LOGITS, "reported loss of a micro-batch", dims, FP32, REPORT.source)
        written = len({one.micro_batch for one in order_of(rank.plan, rank.stage)})
        return Reports(book, line, pipeline_of(rank.plan).micro_batches, written)

    def before(self) -> Runs:
        """Those of rounds that are left out, as a step begins."""
        left = self.count - self.written
        return births([(self.line, left)]) if self.line is not None and left else []

    def after(self) -> Runs:
        """The list goes as the step ends."""
        return deaths([(self.line, self.count)]) if self.line is not None else []

    def told(self, made: Pass, chunk: Chunk) -> Pass:
        """A pass whose loss is reported, where it has one, and whose value goes once its backward has run."""
        if self.line is None or not chunk.last:
            return made
        born = {event - 1 for segment in made.forward for event in segment.events if event > 0}
        gone = tuple(-line - 1 for line in sorted(born) if self.book.lines[line].name == LOSS)
        kept, end = Segment(FORWARD, (self.line + 1,)), Segment(BACKWARD, gone)
        forward, backward = made.after
        return replace(
            made,
            forward=(*made.forward, kept),
            backward=(*made.backward, end),
            after=((*forward, kept), (*backward, end)),
        )
