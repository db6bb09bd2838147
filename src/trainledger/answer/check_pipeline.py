"""What of torchtitan's pipelines and context parallelism cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.check_sequence import exchanges
from trainledger.base.problems import Problem
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.pithtrain import SCHEDULES as DUAL
from trainledger.facts.sharding import SECOND
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import Change, holds
from trainledger.ledger.losses import CHUNKED, FUSED
from trainledger.ledger.strategy import fsdp_of
from trainledger.lines.pipeline import pipeline_of
from trainledger.lines.schedules import schedule_problems
from trainledger.model.program import ClampedExperts, Experts, Model
from trainledger.model.prompts import shared_weights
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import expert_tensor_degree
from trainledger.plan.schema import Plan
from trainledger.plan.stages import schedule_of, split_of, stage_problems, strange_keys

SCHEDULES = {  # of PithTrain's a weight's gradient is counted as made at once
    TORCHTITAN: ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipev"),
    PITHTRAIN: DUAL,
}
SPLIT = ("zb-h1", "zb-v", "dualpipev")  # schedules that make weights' gradients by themselves
HALVES = ("first", "second")  # of a rank's part of the sequence, which ring attention balances by


def pipeline_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan whose layers or whose sequence are spread over ranks."""
    ranks, own = degrees(plan), plan.stack.framework in SCHEDULES
    for name in ("pp", "cp", "ep"):
        degree = getattr(ranks, name)
        if name == "cp" and exchanges(plan):
            continue
        if degree > 1 and (not own or (name == "cp" and plan.stack.framework != TORCHTITAN)):
            yield Problem(f"parallel.{name}", f"found {degree}", "only 1 can be estimated so far")
    if own and ranks.cp > 1 and plan.batch.sequence % (ranks.cp * len(HALVES)):
        unit = ranks.cp * len(HALVES)
        near = max(plan.batch.sequence // unit, 1) * unit
        allowed = f"a multiple of {unit}, two parts for each rank of cp, is needed"
        yield Problem("batch.sequence", f"found {plan.batch.sequence}", allowed, f"Did you mean {near}?")
    if own and ranks.pp > 1:
        yield from _stages(plan)


def _stages(plan: Plan) -> Iterator[Problem]:
    yield from strange_keys(plan)
    strategy, schedule = plan.parallel.strategy, schedule_of(plan)
    if fsdp_of(plan) != SECOND:
        yield Problem("parallel.pp", f"found {plan.parallel.pp} with {strategy}", "fsdp2 and its hsdp can be estimated")
    elif plan.parallel.reshard_after_forward is not False:
        allowed = "weights that stay gathered can be estimated so far, the default with stages"
        found = f"found {plan.parallel.reshard_after_forward} with pp {plan.parallel.pp}"
        yield Problem("parallel.reshard_after_forward", found, allowed, "Set it to false.")
    name = plan.stack.framework
    if schedule not in SCHEDULES[name]:
        known = ", ".join(SCHEDULES[name])
        yield Problem("parallel.schedule", f"found {schedule!r} with {name}", f"{known} can be estimated so far")
    else:
        yield from schedule_problems(pipeline_of(plan))
    if name == TORCHTITAN and schedule in SPLIT:
        yield from _halves(plan)


def _halves(plan: Plan) -> Iterator[Problem]:
    """What a backward in two passes cannot run, or runs in a way that is not known."""
    stack, schedule = plan.stack, schedule_of(plan)
    if stack.recompute.kind != "none":
        allowed = "each weight's gradient would run a layer's forward again: none can be estimated so far"
        yield Problem("stack.recompute.kind", f"found {stack.recompute.kind!r} with {schedule}", allowed)
    if stack.compile:
        allowed = "PyTorch splits no compiled backward"
        yield Problem("stack.compile", f"found {stack.compile!r} with {schedule}", allowed)
    if stack.loss in (CHUNKED, FUSED):
        yield Problem("stack.loss", f"found {stack.loss!r} with {schedule}", "a loss of whole logits is needed")


def pipeline_model_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of a model whose layers cannot be cut into these stages, or its experts spread over these ranks."""
    ranks = degrees(plan)
    if ranks.pp > 1:
        yield from stage_problems(split_of(plan, sum(block.count for block in model.blocks)))
        if plan.stack.framework in SCHEDULES and shared_weights(model):
            found = f"found true with pp {ranks.pp}"
            yield Problem("model.tie_word_embeddings", found, f"{plan.stack.framework} ties no weights of two stages")
    if ranks.ep > 1 and plan.stack.framework in SCHEDULES:
        yield from _experts(plan, model)


def _experts(plan: Plan, model: Model) -> Iterator[Problem]:
    ranks, path, found = degrees(plan), "parallel.ep", f"found {degrees(plan).ep}"
    specs = [op.spec for block in model.blocks for op in block.ops]
    stacks = [spec for spec in specs if isinstance(spec, Experts | ClampedExperts)]
    if not stacks:
        yield Problem(path, f"{found} for {model.family}", "a model with routed experts is needed")
        return
    count, width, each = stacks[0].gate_up.dims[0].size, stacks[0].down.dims[-1].size, expert_tensor_degree(plan)
    inside = ranks.shard * ranks.tp // each
    for what, size in ((f"{count} experts", count), (f"the {inside} ranks that share them", inside)):
        if size % ranks.ep:
            yield Problem(path, found, f"a divisor of {what} is needed")
    over, version = inside // ranks.ep, plan.stack.versions.get(TORCHTITAN, "")
    by_width = plan.stack.framework == TORCHTITAN and inside > count and holds(Change.BY_WIDTH, version)
    if by_width and not inside % ranks.ep and (width // each) % over:
        allowed = f"where ranks outnumber {count} experts, FSDP2 shards their width of {width // each} evenly"
        yield Problem(path, f"{found}, which leaves {over} ranks", allowed)
