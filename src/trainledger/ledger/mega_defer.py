"""The output layer's weight gradient put off until the pipeline has drained: what is kept for it until then.

The layer's input and the gradient of its result stay in lists of the last stage's, for the first micro-batches up to a
limit. Source: megatron/core/tensor_parallel/layers.py; pipeline_parallel/schedules.py, finish_embedding_wgrad_compute
(0.14 to 0.19).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.ledger.book import Book
from trainledger.ledger.mega_passes import Pass
from trainledger.lines.stream import Events, Segment
from trainledger.plan.schema import Plan

PUT_OFF, LIMIT = "defer_embedding_wgrad_compute", "wgrad_deferral_limit"
KEPT = ("gradient of output_layer: output", "decoder.final_layernorm: output")  # lines of the last stage's


def limit_of(plan: Plan) -> int:
    """For how many micro-batches of a step it is put off; 0: for none."""
    given = plan.parallel.options
    if not given.get(PUT_OFF) or plan.parallel.pp == 1:
        return 0
    return int(given.get(LIMIT) or plan.batch.accumulation)


def kept_lines(book: Book, made: Pass) -> tuple[int, ...]:
    """The lines of a chunk's backward that stay: each that dies in it under one of these names."""
    found = {-event - 1 for segment in made.backward for event in segment.events if event < 0}
    return tuple(sorted(line for line in found if book.lines[line].name in KEPT))


def put_off(made: Pass, lines: tuple[int, ...]) -> Pass:
    """A pass in whose backward these lines do not die."""
    gone, products = {-line - 1 for line in lines}, dict(made.products)

    def without(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        found = []
        for moment, events, repeat, _ in segments:
            left = tuple(event for event in events if event not in gone)
            if (after := made.products.get(events)) is not None:
                products[left] = after - sum(event in gone for event in events[:after])
            found.append(Segment(moment, left, repeat))
        return tuple(found)

    backward, later = without(made.backward), without(made.after[1])
    return replace(made, backward=backward, products=products, after=(made.after[0], later))


def drained(lines: tuple[int, ...]) -> Events:
    """Deaths of what a micro-batch has left."""
    return tuple(-line - 1 for line in lines)
