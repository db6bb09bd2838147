"""The parameters of a rank's model chunks as Megatron-Core lays them in flat buffers, and how each chunk is wrapped.

Source: megatron/core/distributed/distributed_data_parallel.py; megatron/training/training.py, get_model (0.14 to 0.19).
"""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.dtypes import FP32
from trainledger.facts.megatron import LAYER_WISE
from trainledger.facts.megatron_buffers import LAID_OUT_AHEAD, release_of
from trainledger.facts.registration import rank_in
from trainledger.ledger.mega_fp8 import Quant, own_dtype, stored
from trainledger.ledger.mega_named import in_further, in_layer
from trainledger.ledger.mega_run import Chunk, Rank
from trainledger.lines.param_bucketing import Bucketing, bucket_of
from trainledger.lines.param_buffers import Parameter, Wrap, experts_apart
from trainledger.model.operations_megatron_moe import taken_apart
from trainledger.model.program import Model, Role, Weight
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import expert_tensor_degree
from trainledger.plan.schema import Plan

DISTRIBUTED, REPLICATED = "megatron-distopt", "megatron-ddp"
Named = tuple[str, int, Weight]  # prefix of a name, the layer's number (-1: of no layer), the rank's part of a weight


def weights_of(rank: Rank, chunk: Chunk) -> list[Named]:
    """The parameters of a chunk in the order in which they are built."""
    model, found = rank.job.model, list[Named]()
    if chunk.first:
        found += [("", -1, weight) for weight in model.embeddings]
    blocks = {layer: block for block in model.blocks for layer in block.layers}
    mega = rank.job.run.software.mega
    grouped = mega is not None and mega.routing is not None and mega.routing.grouped
    for layer in chunk.layers:
        own = taken_apart(blocks[layer].weights, grouped)
        found += [(f"{blocks[layer].name}.", layer, weight) for weight in own]
    if chunk.further and not chunk.first:
        found = [("", -1, weight) for weight in model.embeddings] + found
    norms = [weight for weight in model.head.weights if weight.role is not Role.HEAD]
    if chunk.normed:
        found += [("", -1, weight) for weight in norms]
    for block in model.further if chunk.further else ():
        names = in_layer(block, rank.job.run.software)
        inner = sorted(taken_apart(block.weights, grouped), key=lambda one: rank_in(model.family, names(one.name)))
        found += [(f"{block.name}.{at}.", -1, weight) for at in range(chunk.further) for weight in inner]
    if chunk.last:
        apart = degrees(rank.plan).pp > 1
        found += [
            ("", -1, weight) for weight in model.head.weights if weight not in norms and (not weight.tied or apart)
        ]
    return found


def _kept_alike(model: Model, chunk: Chunk) -> Weight | None:
    """The table that a chunk keeps equal to other stages': the embedding where it is read, by layers for further tokens
    too; where these are not, the tied output layer's own.

    Source: megatron/core/models/common/language_module/language_module.py, setup_embeddings_and_output_layer (0.12 to
    0.19).
    """
    tied = next((one for one in model.head.weights if one.tied), None)
    if tied is None and not model.further:
        return None
    if chunk.first or chunk.further:
        return next(one for one in model.embeddings if one.role is Role.EMBEDDING)
    return tied if chunk.last else None


def parameters_of(stage: Rank, chunk: Chunk) -> Iterator[tuple[Weight, Parameter]]:
    """A chunk's trained parameters in the order of its modules, with their weights. A tied table of two stages is
    shared."""
    plan, model = stage.plan, stage.job.model
    given = degrees(plan)
    etp, release = expert_tensor_degree(plan), release_of(plan.stack.versions)
    apart = experts_apart(given.ep, etp, given.tp, release)
    whole = layer_wise(plan) and laid_out(plan)
    own, kept = own_dtype(plan), _kept_alike(model, chunk) if given.pp > 1 else None
    for name, layer, weight in _named(stage, chunk):
        yield (
            weight,
            Parameter(
                name,
                weight.elements,
                weight.dtype or own,
                stored(quant_of_rank(stage), layer, weight),
                expert=apart and weight.role is Role.EXPERT,
                shared_embedding=weight is kept,
                rows=weight.dims[0].size if whole and _is_matrix(weight) else 0,
            ),
        )


def _is_matrix(weight: Weight) -> bool:
    """Whether a layer-wise optimizer takes it."""
    return len(weight.dims) > 1 and weight.role.value not in LAYER_WISE.others


def quant_of_rank(rank: Rank) -> Quant | None:
    """How the rank's layers take products in 8 bits."""
    mega = rank.job.run.software.mega
    return mega.engine.quant if mega is not None and mega.engine is not None else None


def _named(stage: Rank, chunk: Chunk) -> Iterator[Named]:
    """Parameters with their names: layers are numbered within their chunk, their parameters as they are registered."""
    model, found = stage.job.model, weights_of(stage, chunk)
    software, release = stage.job.run.software, release_of(stage.plan.stack.versions)
    blocks = [(block, in_layer(block, software)) for block in model.blocks]
    naming = {layer: names for block, names in blocks for layer in block.layers}
    further = [(block.name, in_further(block, software, release)) for block in model.further]
    first = min((at for at, (_, layer, _) in enumerate(found) if layer >= 0), default=len(found))
    layers = sorted(
        (one for one in found if one[1] >= 0),
        key=lambda one: (chunk.layers.index(one[1]), rank_in(model.family, naming[one[1]](one[2].name))),
    )
    for prefix, layer, weight in (*found[:first], *layers, *found[first + len(layers) :]):
        number = f"{chunk.layers.index(layer)}." if layer >= 0 else ""
        names = naming[layer] if layer >= 0 else next((own for name, own in further if prefix.startswith(name)), str)
        yield f"{prefix}{number}{names(weight.name)}", layer, weight


def layer_wise(plan: Plan) -> bool:
    """Whether whole parameters are spread over ranks: what the distributed optimizer is for one that takes matrices."""
    return plan.optimizer.name in LAYER_WISE.optimizers and plan.parallel.strategy == LAYER_WISE.strategy


def laid_out(plan: Plan) -> bool:
    """Whether the buffers are laid out for it."""
    given = plan.parallel.options.get(LAYER_WISE.option, LAYER_WISE.laid_out)
    return bool(given) and LAID_OUT_AHEAD.holds(release_of(plan.stack.versions))


def wrap_of(plan: Plan, stage: int = 0, chunk: int = 0, elements: int = 0) -> Wrap:
    """How a resolved plan wraps a model chunk of a pipeline stage. `elements`: of all chunks of the rank."""
    given, options = degrees(plan), plan.parallel.options
    release = release_of(plan.stack.versions)
    ranks = given.dp * given.cp
    experts = max(ranks * given.tp // (given.ep * (plan.parallel.etp or given.tp)), 1)
    bucketing = Bucketing(
        size=options.get("ddp_bucket_size"),
        number=options.get("ddp_num_buckets"),
        elements=elements,
        overlap=bool(options.get("overlap_grad_reduce")),
        stage=stage,
        chunk=chunk,
        at_step=bool(options.get("overlap_param_gather_with_optimizer_step")),
    )
    return Wrap(
        ranks=ranks,
        expert_ranks=experts,
        distributed=plan.parallel.strategy == DISTRIBUTED and (laid_out(plan) or not layer_wise(plan)),
        bucket=bucket_of(bucketing, ranks, given.cp, release),
        gradients=FP32 if plan.precision.gradients == FP32.name else None,
        fast=bool(options.get("ddp_pad_buckets_for_high_nccl_busbw")),
        instances=options.get("num_distributed_optimizer_instances") or 1,
        promoted=tuple(options.get("ddp_param_name_patterns_for_fp32_local_accumulation") or ()),
        release=release,
    )
