"""What a reader of a plan under Megatron-Core should know beside the numbers."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.check_megatron import runs_megatron
from trainledger.facts.code_read import RECOMPUTE_METHOD, SEQUENCE_PARALLEL
from trainledger.facts.meshes import PP
from trainledger.facts.pipelines import MEGATRON_CODE
from trainledger.ledger.rank import Ledger
from trainledger.lines.pipeline import pipeline_of
from trainledger.model.program import Model
from trainledger.plan.mesh import coordinates, mesh_of
from trainledger.plan.schema import Plan


def megatron_notes(plan: Plan, model: Model) -> Iterator[str]:
    """Notes on what the plan leaves on the table, or leaves open; none for other frameworks."""
    if not runs_megatron(plan):
        return
    parallel, recompute = plan.parallel, plan.stack.recompute
    if parallel.tp > 1 and not parallel.sp:
        yield (
            f"parallel.sp: off, so norms, dropouts and what passes between layers are whole on each of {parallel.tp} "
            f"tensor-parallel ranks; sp: true divides them ({SEQUENCE_PARALLEL})"
        )
    if recompute.kind == "full" and recompute.method is None:
        yield (
            "stack.recompute: full without a method, which Megatron-LM asks for; counted as uniform, one layer at a "
            f"time ({RECOMPUTE_METHOD})"
        )
    yield from _pipeline(plan)
    if any(block.top_k for block in model.blocks) and plan.batch.expert_load == 1:
        yield (
            "batch.expert_load: every expert is taken to get its mean share of the tokens, which a router rarely "
            "gives: set a factor of the mean for the fullest rank, or worst"
        )


def _pipeline(plan: Plan) -> Iterator[str]:
    """Fewer micro-batches than keep every stage busy."""
    line = pipeline_of(plan)
    if line.micro_batches < line.ranks:
        yield (
            f"batch.accumulation: {line.micro_batches} micro-batches do not fill a pipeline of {line.ranks} stages, "
            f"which then wait for one another ({MEGATRON_CODE})"
        )


def stage_note(plan: Plan, ledger: Ledger) -> Iterator[str]:
    """Which pipeline stage the ledger is of, where there are several."""
    if runs_megatron(plan) and ledger.rank is not None and plan.parallel.pp > 1:
        stage = coordinates(mesh_of(plan), ledger.rank)[PP]
        yield f"parallel.pp: the ledger is of stage {stage} of {plan.parallel.pp} (from 0); --rank all shows each"
