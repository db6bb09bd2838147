"""The rule of thumb for a whole plan: what the quick procedure needs, read off the plan and its model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainledger.answer.budgets import asked
from trainledger.answer.estimate import device_of
from trainledger.answer.notes_model import towers_beside
from trainledger.answer.quick import QuickAnswer, QuickInput, quick
from trainledger.answer.verdict import Verdict, judge
from trainledger.base.problems import InputError, Problem
from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.optimizer_bytes import dtype_of
from trainledger.facts.optimizer_kinds import Kind, Shape, Width
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.facts.recipes import Copy, Recipe
from trainledger.model.build import build
from trainledger.model.counts import total
from trainledger.model.program import Attention, Model
from trainledger.plan.degrees import accumulation, degrees, global_batch
from trainledger.plan.schema import Plan

SPLIT_OF = {
    "none": "ddp", "ddp": "ddp", "megatron-ddp": "ddp", "fsdp1-noshard": "ddp",
    "zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp1": "zero3", "fsdp2": "zero3", "hsdp": "zero3",
    "megatron-fsdp": "zero3", "megatron-distopt": "distributed-optimizer",
}  # fmt: skip
COPY_OF = {Kind.FIRST: Copy.FIRST, Kind.SECOND: Copy.SECOND}
HEADS = ("num_attention_heads", "n_head", "n_heads")
SCORES = ("eager", "unfused")
ALONE = "of the device's memory alone: the rule says nothing of the node, the disk or other places"


@dataclass(frozen=True, slots=True)
class Thumb:
    """The quick procedure's answer for a plan, what went into it, and the verdict on it."""

    given: QuickInput
    recipe: Recipe
    answer: QuickAnswer
    global_batch: int
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain JSON values, sizes in bytes."""
        given = self.given
        return {
            **self.answer.to_dict(),
            "global_batch": self.global_batch,
            "verdict": self.verdict.to_dict(),
            "given": {
                "parameters": given.parameters, "layers": given.layers, "hidden": given.hidden, "heads": given.heads,
                "sequence": given.sequence, "micro_batch": given.micro_batch, "ranks": given.ranks,
                "strategy": given.strategy, "activations": given.activations, "tensor": given.tensor,
                "copies": [{"copy": copy.value, "dtype": dtype.name} for copy, dtype in self.recipe.copies],
            },
        }  # fmt: skip


def thumb(plan: Plan) -> Thumb:
    """The quick procedure for a resolved plan. Raises InputError with every key that it has no rule for."""
    problems = [*_problems(plan)]
    if problems:
        raise InputError(problems)
    model, ranks = build(plan.keys()), degrees(plan)
    given = QuickInput(
        parameters=total(model),
        layers=sum(block.count for block in model.blocks),
        hidden=model.hidden.size,
        heads=heads_of(model, plan.keys()),
        sequence=plan.batch.sequence,
        micro_batch=plan.batch.micro_batch,
        ranks=ranks.shard if SPLIT_OF[plan.parallel.strategy] != "ddp" else ranks.dp,
        strategy=SPLIT_OF[plan.parallel.strategy],
        activations=_activations(plan),
        tensor=ranks.tp,
        accumulation=accumulation(plan),
    )
    recipe = recipe_of(plan)
    answer = quick(given, recipe)
    device = device_of(plan)
    verdict = judge(device.usable_bytes if device else None, answer.low, answer.expected, answer.high)
    beside = ((ALONE,) if asked(plan) else ()) + tuple(towers_beside(plan))
    verdict = replace(verdict, reasons=(*verdict.reasons, *beside))
    return Thumb(given, recipe, answer, global_batch(plan), verdict)


def heads_of(model: Model, keys: dict[str, Any]) -> int:
    """Query heads of the first layer whose attention is known, else those that the model's keys give."""
    for block in model.blocks:
        for op in block.ops:
            if isinstance(op.spec, Attention):
                return op.spec.heads
    for name in HEADS:
        if isinstance(keys.get(name), int):
            return int(keys[name])
    raise InputError([Problem("model", "no layer with attention heads is known", "the rule of thumb counts heads")])


def recipe_of(plan: Plan) -> Recipe:
    """Every copy that the plan keeps of a parameter. Factored and low-rank states are too small to count here."""
    precision, row = plan.precision, OPTIMIZERS[plan.optimizer.name]
    weights, gradients = DTYPES[precision.weights], DTYPES[precision.gradients]
    copies: list[tuple[Copy, DType]] = [(Copy.WEIGHTS, weights)]
    if plan.trainable != "none":
        copies.append((Copy.GRADIENTS, gradients))
        if precision.main_gradients:
            copies.append((Copy.MAIN_GRADIENTS, DTYPES[precision.main_gradients]))
        master = DTYPES[precision.master] if precision.master else weights
        if master != weights:
            copies.append((Copy.MASTER, master))
        given: dict[str, DType] = {name: DTYPES[dtype] for name, dtype in plan.optimizer.states.items()}
        for state in row.states:
            if state.shape is not Shape.FULL:
                continue
            copy = COPY_OF.get(state.kind, Copy.MOMENTUM)
            dtype = given.get(copy.value.partition("_")[0])
            if dtype is None and state.width is Width.CODES and row.blocks is not None:
                dtype = row.blocks.codes
            copies.append((copy, dtype or dtype_of(row.implementations[0].width or state.width, master, gradients)))
    return Recipe("plan", "the plan's own copies", tuple(copies), row.source)


def _activations(plan: Plan) -> str:
    """The published row that is nearest to what the plan keeps."""
    if plan.stack.recompute.kind == "full":
        return "full"
    stored = plan.stack.attention in SCORES and plan.stack.recompute.kind != "selective"
    if degrees(plan).tp == 1:
        return "none" if stored else "selective"
    split = "tensor-sequence" if plan.parallel.sp else "tensor"
    return split if stored else f"{split}-selective"


def _problems(plan: Plan) -> Iterator[Problem]:
    ranks, allowed = degrees(plan), "the rule of thumb covers full training over data- and tensor-parallel ranks"
    for name in ("pp", "cp", "ep"):
        if getattr(ranks, name) > 1:
            yield Problem(f"parallel.{name}", f"found {getattr(ranks, name)}", allowed)
    if plan.trainable not in ("all", "none"):
        yield Problem("trainable", "found patterns", f"{allowed}, all or nothing trained")
    for name in ("adapter", "quantization"):
        if getattr(plan, name) is not None:
            yield Problem(name, "given", allowed)
    if plan.optimizer.name not in OPTIMIZERS:
        yield Problem("optimizer.name", f"found {plan.optimizer.name!r}", f"known are {', '.join(sorted(OPTIMIZERS))}")
