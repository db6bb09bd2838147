"""A model whose experts are modules of their own that run one after the other, as in Transformers before 5.0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainledger.facts.experts import LOOPED_EXPERTS, ExpertNames
from trainledger.facts.quantization import STACKED_EXPERTS
from trainledger.facts.versions import at_least
from trainledger.model.program import KEPT, Block, Experts, Looped, Model, Op, Role, Router, Weight
from trainledger.model.stacked import ALL_LINEAR, named
from trainledger.plan.schema import Plan
from trainledger.plan.training import Adapter

ROUTER = "gate"
LAYERS = ("gate_proj", "up_proj", "down_proj")  # what most classes call an expert's
MODULE = "mlp"  # what families call the module that has router and experts
SHARED, LOGITS = f"{MODULE}.shared_expert", "router_logits"
WORST = 0.0


def loops(plan: Plan, model: Model) -> bool:
    """Whether the plan's model has experts in modules of their own of which something is trained."""
    release = plan.stack.versions.get("transformers")
    if release is None or at_least(release, STACKED_EXPERTS.since):
        return False
    return plan.quantization is None if plan.adapter is None else bool(reached(plan.adapter, model))


def reached(given: Adapter, model: Model) -> str:
    """The path of an expert's linear layer, or of the router's, that an adapter of such a release goes to; empty for
    none."""
    names = LOOPED_EXPERTS.names.get(model.family)
    module, layers = (names.module, (names.gate, names.up, names.down)) if names else (MODULE, LAYERS)
    for block in model.blocks:
        if any(isinstance(op.spec, Experts | Looped) for op in block.ops):
            for layer in block.layers:
                for name in (*(f"experts.0.{one}" for one in layers), ROUTER):
                    path = f"{block.name}.{layer}.{module}.{name}"
                    if given.targets == ALL_LINEAR or named(path, given.targets or ()):
                        return path
    return ""


def looped(model: Model, plan: Plan) -> Model:
    """The model with each stack of experts taken apart, under the names that its class then gave them."""
    names = LOOPED_EXPERTS.names.get(model.family)
    if names is None:
        return model
    finds = LOOPED_EXPERTS.finds_first(model.family, plan.stack.versions.get("transformers", ""))
    given = plan.batch.expert_load
    load = WORST if isinstance(given, str) else given
    return replace(model, blocks=tuple(_block(block, names, (load, finds)) for block in model.blocks))


def _block(block: Block, names: ExpertNames, how: tuple[float, bool]) -> Block:
    stacks = [op.spec for op in block.ops if isinstance(op.spec, Experts)]
    if not stacks:
        return block
    ops = tuple(_op(op, names, how) for op in _ordered(block.ops))
    apart = {op.spec for op in ops if isinstance(op.spec, Looped)}
    weights = tuple(_named(weight, names) for one in block.weights for weight in _apart(one, stacks, apart, names))
    return replace(block, ops=ops, weights=weights)


def _ordered(ops: tuple[Op, ...]) -> Iterator[Op]:
    """The operations with a shared expert's after the routed ones; what the loop names ends where its scores do."""
    late = [op for op in ops if f"{op.name}.".startswith(f"{SHARED}.")]
    for op in ops:
        if op not in late:
            ended = tuple(name for name in op.drop if name != LOGITS)  # which the layer names to its end
            yield replace(op, drop=(*ended, *KEPT)) if LOGITS in op.drop else op
        if isinstance(op.spec, Experts):
            yield from late


def _op(op: Op, names: ExpertNames, how: tuple[float, bool]) -> Op:
    name = op.name
    if name.partition(".")[0] == MODULE:
        name = names.module + name.removeprefix(MODULE)
    spec = op.spec
    if isinstance(spec, Router):
        spec = replace(spec, weight=_named(spec.weight, names), upcast=False, early=True)
    elif isinstance(spec, Experts):
        spec = Looped(spec.top_k, tuple(_experts(spec, names)), spec.act, *how)
    return replace(op, name=name, spec=spec)


def _experts(spec: Experts, names: ExpertNames) -> Iterator[tuple[Weight, Weight, Weight]]:
    count, _, hidden = spec.gate_up.dims[0], *spec.gate_up.dims[1:]
    inner = spec.down.dims[-1]
    for at in range(count.size):
        path = f"{names.module}.experts.{at}"
        yield (
            Weight(f"{path}.{names.gate}.weight", (inner, hidden), Role.EXPERT),
            Weight(f"{path}.{names.up}.weight", (inner, hidden), Role.EXPERT),
            Weight(f"{path}.{names.down}.weight", (hidden, inner), Role.EXPERT),
        )


def _apart(weight: Weight, stacks: list[Experts], apart: set[Looped], names: ExpertNames) -> Iterator[Weight]:
    """What stands in a stacked weight's place: all of the experts' for the first of the two, nothing for the other."""
    if any(weight == stack.gate_up for stack in stacks):
        for spec in apart:
            for expert in spec.experts:
                yield from (one for _, one in sorted(zip(names.order, expert, strict=True), key=lambda pair: pair[0]))
    elif not any(weight == stack.down for stack in stacks):
        yield weight


def _named(weight: Weight, names: ExpertNames) -> Weight:
    if weight.name.partition(".")[0] != MODULE or weight.role is Role.EXPERT:
        return weight
    return replace(weight, name=names.module + weight.name.removeprefix(MODULE))
