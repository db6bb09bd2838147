"""Advice: changes of what a run does between its steps, in evaluation."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.move_row import AtLeast, Move, Price, Times

LOOP = Source("Transformers Trainer, evaluation_loop", "transformers/trainer.py; TrainingArguments", "5.24.0")
SET = ("evaluation.batches", AtLeast(1))
KEPT = ("evaluation.prediction_loss_only", (False,))

EVALUATION = (
    Move(
        "half the micro-batch of evaluation, twice the batches", "evaluation batch",
        (("evaluation.micro_batch", Times(1, 2)), ("evaluation.batches", Times(2))), Price.LAUNCHES, LOOP,
        (SET, ("evaluation.micro_batch", AtLeast(2))),
    ),
    Move(
        "kept logits to the host after every batch", "evaluation logits", (("evaluation.accumulation", 1),), Price.HOST,
        LOOP, (SET, KEPT),
    ),
    Move(
        "no logits kept in evaluation", "evaluation logits", (("evaluation.prediction_loss_only", True),),
        Price.NUMERICS, LOOP, (SET, KEPT), numerics="evaluation reports the loss alone, no metric that reads logits",
    ),
)  # fmt: skip
