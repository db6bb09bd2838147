"""What of Megatron-Core's runs cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.check_megatron_fp8 import quantised_problems
from trainledger.answer.check_megatron_moe import expert_problems
from trainledger.base.problems import Problem
from trainledger.facts.dtypes import FP8
from trainledger.facts.megatron import FRAMEWORKS, FSDP, LOSSES, STRATEGIES
from trainledger.facts.megatron_offload import COUNT, OPTION
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.facts.phases import TASKS
from trainledger.facts.transformer_engine import NAME
from trainledger.ledger.mega import Backend
from trainledger.ledger.mega_buffers import DISTRIBUTED
from trainledger.ledger.mega_choice import WORDS
from trainledger.ledger.mega_fp8 import WIDTHS
from trainledger.ledger.mega_fsdp import outer_of
from trainledger.plan.megatron_keys import type_problems
from trainledger.plan.schema import Plan

SPREAD = "distribute_saved_activations"


def runs_megatron(plan: Plan) -> bool:
    """Whether Megatron-Core runs the plan."""
    return plan.stack.framework in FRAMEWORKS


def megatron_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan that Megatron-Core runs."""
    yield from type_problems(plan)
    given = {
        "task": (plan.task, ("pretrain", "sft", *TASKS)),
        "parallel.strategy": (plan.parallel.strategy, STRATEGIES),
        "stack.loss": (plan.stack.loss, LOSSES),
        "precision.compute": (plan.precision.compute, ("fp32", "bf16", "fp16", *WIDTHS)),
        "precision.weights": (plan.precision.weights, ("fp32", "bf16", "fp16", FP8.name)),
        "adapter.kind": (plan.adapter.kind if plan.adapter else None, (None,)),
        "quantization.kind": (plan.quantization.kind if plan.quantization else None, (None,)),
        "trainable": (plan.trainable, ("all",)),
        "offload.optimizer": (
            plan.offload.optimizer,
            ("cpu", None) if plan.parallel.strategy == DISTRIBUTED else (None,),
        ),
        "offload.params": (plan.offload.params, (None,)),
        "offload.activations": (plan.offload.activations, ("cpu",) if _hosts(plan) else (None,)),
        "optimizer.in_backward": (plan.optimizer.in_backward, (False,)),
    }
    for path, (value, allowed) in given.items():
        if value not in allowed:
            known = ", ".join("none" if one is None else str(one) for one in allowed)
            yield Problem(path, f"found {value!r} with {plan.stack.framework}", f"{known} can be estimated so far")
    options = plan.parallel.options
    if plan.parallel.strategy == FSDP.strategy:
        for name, values in ((FSDP.option, tuple(FSDP.shardings)), (FSDP.outer, FSDP.outer_known)):
            if options.get(name, values[-1]) not in values:
                found = f"found {options[name]!r} with {FSDP.strategy}"
                yield Problem(f"parallel.options.{name}", found, f"{', '.join(values)} can be estimated so far")
    inner = options.get(FSDP.option, FSDP.sharding)
    if plan.parallel.strategy == FSDP.strategy and outer_of(plan) and inner != FSDP.sharding:
        yield Problem(f"parallel.options.{FSDP.outer}", f"found beside {inner}", f"it runs with {FSDP.sharding} alone")
    yield from _spread(plan)
    yield from _context(plan)
    yield from _whole_layers(plan)
    yield from expert_problems(plan)
    yield from quantised_problems(plan)
    yield from _optimizer(plan)


def _optimizer(plan: Plan) -> Iterator[Problem]:
    if plan.optimizer.name not in OPTIMIZERS:
        known = ", ".join(sorted(OPTIMIZERS))
        yield Problem("optimizer.name", f"found {plan.optimizer.name!r}", f"{known} can be estimated so far")


def _spread(plan: Plan) -> Iterator[Problem]:
    """A recomputed layer's input is spread over tp once."""
    if plan.stack.options.get(SPREAD) and plan.parallel.sp and plan.stack.recompute.kind == "full":
        need = "Megatron-Core stops beside sequence parallelism, which spreads a layer's input already"
        yield Problem(f"stack.options.{SPREAD}", "found true", need)


def _context(plan: Plan) -> Iterator[Problem]:
    """Attention over a spread sequence. Sources: transformer_engine/pytorch/attention/dot_product_attention/utils.py,
    get_attention_backend (2.5 to 2.17); megatron/core/transformer/dot_product_attention.py (0.12 to 0.19)."""
    word, cp = plan.stack.attention, plan.parallel.cp
    if cp > 1 and WORDS.get(str(word)) is Backend.UNFUSED:
        found, need = f"found {word!r} with cp {cp}", "no kernel that keeps all scores takes a part of the sequence"
        yield Problem("stack.attention", found, need, "Write fused or flash.")


def _hosts(plan: Plan) -> bool:
    """Whether saved tensors go to the host: of modules, or of whole layers."""
    return bool(plan.stack.options.get(OPTION) or plan.stack.options.get(COUNT))


def _whole_layers(plan: Plan) -> Iterator[Problem]:
    """What Megatron-Core does not run beside layers whose saved tensors go to the host."""
    count, layers = plan.stack.options.get(COUNT) or 0, plan.keys().get("num_hidden_layers")
    if not count:
        return
    path = f"stack.options.{COUNT}"
    if isinstance(layers, int) and count >= layers:
        yield Problem(path, f"found {count} of {layers} layers", "the last layer stays: fewer than all can go")
    others = {
        "parallel.pp": plan.parallel.pp > 1,
        "stack.recompute": plan.stack.recompute.kind not in ("none", None),
        f"stack.options.{OPTION}": bool(plan.stack.options.get(OPTION)),
        "stack.kernels": NAME not in plan.stack.kernels,
    }
    for other in (name for name, wrong in others.items() if wrong):
        need = "Transformer Engine's layers alone" if other == "stack.kernels" else "it is not run with these layers"
        yield Problem(other, f"found {path}: {count}", need)
