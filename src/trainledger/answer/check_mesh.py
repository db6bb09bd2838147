"""Degrees of parallelism that cannot be with a plan's model, batch and framework: all at once, each with the nearest
that can.

Sources: Megatron-Core 0.19.2, transformer_config.py (__post_init__), tensor_parallel/{layers,mappings}.py and
parallel_state.py (initialize_model_parallel); Megatron-LM, training/arguments.py (validate_args); torchtitan,
distributed/parallel_dims.py (_validate) from August 2025 on.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.demands import Demand, divides, multiple, problems_of
from trainledger.base.problems import Problem
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.facts.megatron_keys import PADDING
from trainledger.facts.meshes import HEAD_EXCHANGE, MEGATRON, MEGATRON_PP_FIRST, PP_FIRST_OPTION, ZIGZAG
from trainledger.facts.pipelines import MEGATRON_RUNS, TITAN_STAGES
from trainledger.lines.pipeline import pipeline_of
from trainledger.lines.schedules import schedule_problems
from trainledger.model.sizes import Sizes, sizes_of
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import expert_tensor_degree, mesh_of, nesting_of
from trainledger.plan.schema import Plan
from trainledger.plan.stages import chunks_of, schedule_of, split_of, stage_problems, strange_keys

_TP, _CP, _EP, _ETP = (f"parallel.{name}" for name in ("tp", "cp", "ep", "etp"))
_OPTIONS = "parallel.options"
INSTANCES = "num_distributed_optimizer_instances"


def mesh_problems(plan: Plan) -> tuple[Problem, ...]:
    """Every degree that the framework refuses, or fails on, with this model and batch. None where nothing is known.

    The plan's own degrees multiply to its world (plan.check sees to that); sizes that the model's keys leave out are
    not checked.
    """
    sizes = sizes_of(plan.keys())
    nested = nesting_of(plan)
    if nested in (MEGATRON, MEGATRON_PP_FIRST):
        found = (*problems_of(_megatron(plan, sizes)), *_order(plan, sizes), *_vocabulary(plan))
    elif plan.stack.framework == TITAN_STAGES.framework:
        found = problems_of(_titan(plan, sizes))
    else:
        return ()
    return (*found, *_pipeline(plan, sizes))


def _pipeline(plan: Plan, sizes: Sizes) -> Iterator[Problem]:
    if plan.parallel.pp == 1:
        return
    yield from strange_keys(plan)
    if sizes.layers is not None:
        yield from stage_problems(split_of(plan, sizes.layers, sizes.mtp))
    schedule = schedule_of(plan)
    if plan.stack.framework in FRAMEWORKS and schedule not in MEGATRON_RUNS:
        found = f"found {schedule!r} with {plan.stack.framework}"
        fix = f"Set it to {MEGATRON_RUNS[-1] if chunks_of(plan) > 1 else MEGATRON_RUNS[0]}, or leave it out."
        yield Problem("parallel.schedule", found, f"Megatron-Core runs {' and '.join(MEGATRON_RUNS)}", fix)
        return
    yield from schedule_problems(pipeline_of(plan))


def _vocabulary(plan: Plan) -> Iterator[Problem]:
    """The table's rows are spread over tp; Megatron-LM pads them so that they can be."""
    size, tp = plan.keys().get("vocab_size"), plan.parallel.tp
    if isinstance(size, bool) or not isinstance(size, int) or size % tp == 0:
        return
    unit = PADDING.multiple * tp
    found, need = f"{size} is no multiple of tp {tp}", f"Megatron-LM pads it to a multiple of {PADDING.multiple} x tp"
    yield Problem("model.vocab_size", found, need, f"The nearest that can is {size + unit - size % unit}.")


def _megatron(plan: Plan, sizes: Sizes) -> Iterator[Demand]:
    tp = plan.parallel.tp
    if sizes.heads is not None:
        yield divides(_TP, tp, sizes.heads, "the attention heads")
    if sizes.kv_heads is not None and sizes.kv_heads != sizes.heads:
        yield _kv_heads(tp, sizes.kv_heads)
    yield from _widths(plan, sizes)
    yield from _sequence(plan)
    yield from _head_exchange(plan, sizes)
    yield from _spread(plan, sizes)
    yield from _instances(plan)


def _instances(plan: Plan) -> Iterator[Demand]:
    """Instances of the distributed optimizer share the data-parallel ranks evenly; 0 stands for one."""
    ranks, count = degrees(plan), plan.parallel.options.get(INSTANCES) or 1
    yield divides(f"{_OPTIONS}.{INSTANCES}", count, ranks.dp * ranks.cp, "the data-parallel ranks")


def _kv_heads(tp: int, heads: int) -> Demand:
    """Megatron-Core replicates key and value heads where there are fewer than ranks, if they divide the ranks."""
    found, allowed = f"{tp} and {heads} key-value heads", "one must divide the other"
    return Demand(_TP, tp, found, allowed, lambda n: heads % n == 0 or n % heads == 0)


def _widths(plan: Plan, sizes: Sizes) -> Iterator[Demand]:
    tp, etp = plan.parallel.tp, expert_tensor_degree(plan)
    for size, name in ((sizes.ffn, "the feed-forward width"), (sizes.shared_ffn, "the shared experts' width")):
        if size is not None:
            yield divides(_TP, tp, size, name)
    if sizes.expert_ffn is not None:
        path = _TP if plan.parallel.etp is None else _ETP
        yield divides(path, etp, sizes.expert_ffn, "the experts' width")


def _sequence(plan: Plan) -> Iterator[Demand]:
    """A sequence is cut into pieces over context-parallel ranks, and under sequence parallelism over tp as well."""
    parallel, size = plan.parallel, plan.batch.sequence
    if parallel.cp > 1:
        pieces = parallel.cp * ZIGZAG.pieces
        found = f"{size} is no multiple of {ZIGZAG.pieces} x cp {parallel.cp}"
        yield Demand("batch.sequence", size, found, f"a multiple of {pieces} is needed", lambda n: n % pieces == 0)
    if parallel.tp > 1 and (parallel.sp or plan.stack.framework == TITAN_STAGES.framework):
        name = f"cp {parallel.cp} x tp {parallel.tp}, over which sequences are sharded"
        yield multiple("batch.sequence", size, parallel.cp * parallel.tp, name)


def _head_exchange(plan: Plan, sizes: Sizes) -> Iterator[Demand]:
    cp, tp, way = plan.parallel.cp, plan.parallel.tp, plan.parallel.options.get("cp_comm_type")
    if cp == 1 or way not in HEAD_EXCHANGE.names:
        return
    for size, name in ((sizes.heads, "attention heads"), (sizes.kv_heads, "key-value heads")):
        if size is not None:
            yield divides(_CP, cp, max(size // tp, 1), f"the {name} of a tensor-parallel rank")


def _spread(plan: Plan, sizes: Sizes) -> Iterator[Demand]:
    """Experts over ep ranks, and the world over the mesh of experts."""
    ep, etp, ranks = plan.parallel.ep, expert_tensor_degree(plan), degrees(plan)
    if sizes.experts is None:
        allowed = "the model has no experts to spread"
        yield Demand(_EP, ep, f"found {ep}", allowed, lambda n: n == 1)
        return
    if ep > 1:
        yield divides(_EP, ep, sizes.experts, "the experts")
    inside = ranks.world // ranks.pp
    found = f"ep {ep} x etp {etp} does not divide the {inside} ranks of a pipeline stage"
    path, value, other = (_EP, ep, etp) if ep > 1 else (_ETP, etp, ep)
    yield Demand(path, value, found, f"experts are spread over these ranks: a part of {inside} is needed",
                 lambda n: inside % (n * other) == 0)  # fmt: skip


def _order(plan: Plan, sizes: Sizes) -> Iterator[Problem]:
    """With pp inside dp, both meshes must have the same data-parallel degree, or their pipelines would differ."""
    if nesting_of(plan) is not MEGATRON_PP_FIRST or plan.parallel.pp == 1 or sizes.experts is None:
        return
    mesh = mesh_of(plan)
    if mesh.size("edp") != mesh.size("dp"):
        found = f"true, but experts have {mesh.size('edp')} data-parallel ranks and dense layers {mesh.size('dp')}"
        fix = f"Leave it out, or set ep x etp to tp x cp = {plan.parallel.tp * plan.parallel.cp}."
        yield Problem(f"{_OPTIONS}.{PP_FIRST_OPTION}", found, "with a pipeline the two must be equal", fix)


def _titan(plan: Plan, sizes: Sizes) -> Iterator[Demand]:
    parallel, mesh = plan.parallel, mesh_of(plan)
    tp, ep, etp = parallel.tp, parallel.ep, expert_tensor_degree(plan)
    for size, name in ((sizes.heads, "the attention heads"), (sizes.kv_heads, "the key-value heads")):
        if size is not None and tp > 1:
            yield divides(_TP, tp, size, name)
    yield from _sequence(plan)
    if ep == 1 or sizes.experts is None:
        return
    yield divides(_EP, ep, sizes.experts, "the experts")
    found, allowed = f"found {etp} with tp {tp}", "experts are sharded over all of tp, or over none of it"
    yield Demand(_ETP, etp, found, allowed, lambda n: n in (1, tp))
    inside = mesh.size("dp_shard") * parallel.cp * tp
    found = f"ep {ep} x etp {etp} does not divide dp_shard x cp x tp = {inside}"
    yield Demand(_EP, ep, found, "experts are spread over these ranks", lambda n: inside % (n * etp) == 0)
