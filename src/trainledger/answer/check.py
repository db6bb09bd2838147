"""What this version cannot estimate: every such key of a plan at once, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainledger.answer.check_acting import acting_problems
from trainledger.answer.check_adapter import adapter_problems, head_problems, magnitude_problems
from trainledger.answer.check_attention import attention_problems
from trainledger.answer.check_colossal import colossal_problems
from trainledger.answer.check_deepspeed import deepspeed_model_problems, deepspeed_problems
from trainledger.answer.check_dtypes import dtype_problems
from trainledger.answer.check_evaluation import evaluation_problems
from trainledger.answer.check_framework import framework_problems
from trainledger.answer.check_kernels import kernel_problems
from trainledger.answer.check_linear import linear_problems
from trainledger.answer.check_megatron import megatron_problems, runs_megatron
from trainledger.answer.check_megatron_deepspeed import layer_problems, wrapped_problems
from trainledger.answer.check_mesh import mesh_problems
from trainledger.answer.check_offload import activation_problems, host_step_problems, offloads_inputs
from trainledger.answer.check_pipeline import pipeline_model_problems, pipeline_problems
from trainledger.answer.check_preferences import preference_problems
from trainledger.answer.check_prefix import prefix_model_problems, prefix_problems
from trainledger.answer.check_save import save_problems
from trainledger.answer.check_sequence import fetches, sequence_model_problems, sequence_problems
from trainledger.answer.check_spread import spread_problems
from trainledger.answer.check_stacked import expert_problems
from trainledger.answer.check_tensor import tensor_model_problems, tensor_problems
from trainledger.answer.check_torchtitan import torchtitan_problems
from trainledger.answer.check_trainable import trainable_problems
from trainledger.answer.check_wrapping import wrapping_model_problems, wrapping_problems
from trainledger.answer.node import node_problems
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.megatron import WRAPPED
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.facts.optimizers_other import BNB_ROWS
from trainledger.facts.scope import OWN_SCOPE, SCOPE
from trainledger.facts.sharding import FIRST, OFFLOAD, SECOND, VERSIONS, WORDS
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.ledger.host_stepped import steps_on_host
from trainledger.ledger.run import every_of
from trainledger.ledger.strategy import fsdp_of, waits
from trainledger.model.counts import has_tuned
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

WHOLE = ("none", "ddp")  # strategies under which a rank holds every gradient


def check(plan: Plan) -> None:
    """Raise InputError with every key whose value cannot be estimated yet."""
    acting = [*acting_problems(plan, check), *evaluation_problems(plan), *save_problems(plan)]
    if runs_megatron(plan):
        raise_if([*megatron_problems(plan), *mesh_problems(plan), *node_problems(plan), *acting])
        return
    if plan.stack.framework == WRAPPED:
        raise_if([*wrapped_problems(plan), *deepspeed_problems(plan), *node_problems(plan), *acting])
        return
    found = [*_values(plan), *_recompute(plan), *_degrees(plan), *_parts(plan), *_sharding(plan), *_offload(plan)]
    found += [*framework_problems(plan), *colossal_problems(plan), *torchtitan_problems(plan)]
    found += [*preference_problems(plan), *acting]
    found += mesh_problems(plan) if plan.stack.framework == TORCHTITAN else ()
    raise_if(tuple(dict.fromkeys([*found, *wrapping_problems(plan), *node_problems(plan)])))


def check_model(plan: Plan, model: Model) -> None:
    """Raise InputError when a block of the model has no program to walk, or none of the modules to recompute."""
    raise_if(list(layer_problems(plan, model)))
    if runs_megatron(plan) or plan.stack.framework == WRAPPED:
        return
    reasons = dict.fromkeys(block.unknown for block in model.blocks if block.unknown)
    allowed = "its states can be counted, not its activations"
    problems = [Problem("model.model_type", f"found {model.family!r}: {reason}", allowed) for reason in reasons]
    problems += [*expert_problems(plan, model), *prefix_model_problems(model), *deepspeed_model_problems(plan, model)]
    problems += [*dtype_problems(plan, model), *attention_problems(plan, model), *tensor_model_problems(plan, model)]
    problems += kernel_problems(plan, model)
    problems += [*pipeline_model_problems(plan, model), *sequence_model_problems(plan, model)]
    problems += [*trainable_problems(plan, model), *head_problems(plan, model), *magnitude_problems(model)]
    problems += linear_problems(plan, model)
    if not problems:
        problems += wrapping_model_problems(plan, model)
    if plan.adapter is not None and not has_tuned(model):
        found, fix = "fits no module", "A text is the pattern of a whole path; names of modules go into a list."
        problems.append(Problem("adapter.targets", found, "a module that the method can adapt is needed", fix))
    if problems or not plan.stack.recompute.modules:
        raise_if(problems)
        return
    names = {op.name for block in model.blocks for op in block.ops}
    known = sorted({name[: at if at > 0 else None] for name in names for at in (name.find("."), -1)})
    for module in plan.stack.recompute.modules:
        if not any(name == module or name.startswith(f"{module}.") for name in names):
            near = nearest(module, known)
            fix = f"Did you mean {near}?" if near else ""
            problems.append(
                Problem(
                    "stack.recompute.modules", f"no module {module!r} in a layer", f"there are {', '.join(known)}", fix
                )
            )
    raise_if(problems)


def raise_if(problems: Sequence[Problem]) -> None:
    """Raise InputError when there is a problem."""
    if problems:
        raise InputError(problems)


def _recompute(plan: Plan) -> Iterator[Problem]:
    given = plan.stack.recompute
    if given.method is not None:
        yield Problem("stack.recompute.method", f"found {given.method!r}", "Megatron's; Transformers has whole layers")
    own = plan.stack.framework == TORCHTITAN
    if given.kind == "selective" and not given.modules and not every_of(given.policy) and not own:
        found = "no modules" if given.policy is None else f"found policy {given.policy!r}"
        allowed = "names of modules, or the policy `every nth layer`, can be estimated so far"
        yield Problem("stack.recompute", found, allowed)
    if given.modules and given.reentrant:
        yield Problem("stack.recompute.reentrant", "found true beside modules", "single modules run without reentrance")


def _values(plan: Plan) -> Iterator[Problem]:
    given = {
        "task": plan.task,
        "parallel.strategy": plan.parallel.strategy,
        "stack.framework": plan.stack.framework,
        "stack.loss": plan.stack.loss,
        "stack.recompute.kind": plan.stack.recompute.kind,
        "precision.compute": plan.precision.compute,
        "precision.weights": plan.precision.weights,
    }
    for path, value in given.items():
        allowed = (*SCOPE[path], *OWN_SCOPE.get(plan.stack.framework, {}).get(path, ()))
        if value not in allowed:
            yield Problem(path, f"found {value!r}", f"{_listed(allowed)} can be estimated so far")
    if plan.optimizer.name not in OPTIMIZERS:
        known = ", ".join(sorted(OPTIMIZERS))
        yield Problem("optimizer.name", f"found {plan.optimizer.name!r}", f"{known} can be estimated so far")
    for kernel in plan.stack.kernels:
        if kernel not in SCOPE["stack.kernels"]:
            known = _listed(SCOPE["stack.kernels"])
            yield Problem("stack.kernels", f"found {kernel!r}", f"{known} can be estimated so far")


def _sharding(plan: Plan) -> Iterator[Problem]:
    """Values of FSDP's settings that have no rule."""
    for name, allowed in WORDS.items():
        value = plan.parallel.options.get(name)
        if value is not None and str(value).upper() not in allowed:
            near = nearest(str(value).upper(), allowed)
            yield Problem(
                f"parallel.options.{name}", f"found {value!r}", f"{_listed(allowed)} can be estimated so far",
                f"Did you mean {near}?" if near else "",
            )  # fmt: skip
    if plan.optimizer.in_backward and plan.parallel.strategy not in WHOLE:
        yield Problem(
            "optimizer.in_backward", f"found true beside {plan.parallel.strategy}",
            "a step in backward can be estimated where gradients are whole", f"Strategies: {', '.join(WHOLE)}.",
        )  # fmt: skip
    yield from _reshard(plan)
    version = plan.parallel.options.get("fsdp_version")
    if version is not None and version not in VERSIONS:
        yield Problem("parallel.options.fsdp_version", f"found {version!r}", "1 or 2 is needed")


def _reshard(plan: Plan) -> Iterator[Problem]:
    """A number of ranks over which weights are kept after their forward, as FSDP2 allows it."""
    given, shard = plan.parallel.reshard_after_forward, degrees(plan).shard
    if isinstance(given, bool):
        return
    path, found = "parallel.reshard_after_forward", f"found {given}"
    if fsdp_of(plan) != SECOND:
        yield Problem(path, found, "a number of ranks is FSDP2's alone", "Set it to true or false.")
    elif shard % given:
        near = max(one for one in range(1, min(given, shard) + 1) if not shard % one)
        yield Problem(path, found, f"a divisor of the {shard} ranks that shard is needed", f"Did you mean {near}?")


def _offload(plan: Plan) -> Iterator[Problem]:
    """FSDP takes weights, gradients and the optimizer's step to the host together, and nothing further."""
    version, given = fsdp_of(plan), plan.offload
    if not version or given.params is given.optimizer is None:
        return
    together = "FSDP offloads weights, gradients and the optimizer's step together"
    if given.params is None:
        yield Problem("offload.optimizer", f"found {given.optimizer!r} alone", together, "Set offload.params: cpu")
    for name, place in (("params", given.params), ("optimizer", given.optimizer)):
        if place is not None and place not in OFFLOAD.places:
            yield Problem(f"offload.{name}", f"found {place!r} under FSDP", f"{_listed(OFFLOAD.places)} is what it has")
    for name in ("master", "main_gradients"):
        kept = getattr(plan.precision, name)
        if kept not in (None, plan.precision.weights):
            yield Problem(f"precision.{name}", f"found {kept!r} beside offloaded weights", "FSDP steps on its shards")
    if OPTIMIZERS.get(plan.optimizer.name) in BNB_ROWS:
        yield Problem("optimizer.name", f"found {plan.optimizer.name!r}", "it steps on a device only, FSDP on the host")
    if version == FIRST and plan.batch.accumulation > 1 and not waits(plan):
        found = f"found {plan.batch.accumulation} with gradients reduced in each"
        allowed = "FSDP1 cannot add to gradients on the host"
        yield Problem("batch.accumulation", found, allowed, "Set parallel.options.no_sync: true")


def _listed(values: tuple[str | bool | None, ...]) -> str:
    return ", ".join(dict.fromkeys(value for value in values if isinstance(value, str)))


def _degrees(plan: Plan) -> Iterator[Problem]:
    yield from tensor_problems(plan)
    yield from pipeline_problems(plan)
    yield from sequence_problems(plan)


def _parts(plan: Plan) -> Iterator[Problem]:
    yield from adapter_problems(plan)
    yield from prefix_problems(plan)
    yield from deepspeed_problems(plan)
    yield from spread_problems(plan)
    yield from (*host_step_problems(plan), *activation_problems(plan))
    for name in ("optimizer", "params", "activations"):
        place = getattr(plan.offload, name)
        if (name == "optimizer" and steps_on_host(plan)) or (name == "activations" and offloads_inputs(plan)):
            continue
        own = OWN_SCOPE.get(plan.stack.framework, {}).get(f"offload.{name}", ())
        if name == "activations" and fetches(plan):
            continue
        if place is not None and plan.parallel.strategy not in SCOPE[f"offload.{name}"] and place not in own:
            yield Problem(
                f"offload.{name}",
                f"found {place!r}",
                "only what DeepSpeed's ZeRO, FSDP and, on one device, torchao offload can be estimated so far",
            )
