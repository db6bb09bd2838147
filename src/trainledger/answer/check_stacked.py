"""Adapters of experts and routers that cannot be estimated, or that PEFT itself refuses."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.experts import LOOPED_EXPERTS
from trainledger.facts.peft import LORA_KINDS
from trainledger.facts.peft_experts import LISTS, PARAMETERS, TEXTS, renamed
from trainledger.facts.quantization import STACKED_EXPERTS
from trainledger.facts.versions import at_least
from trainledger.model import stacked
from trainledger.model.looped import reached
from trainledger.model.program import Model, SigmoidRouter
from trainledger.model.stacked import ALL_LINEAR
from trainledger.plan.schema import Plan
from trainledger.plan.training import Adapter

UNREAD = ("zero3", "fsdp1", "fsdp1-noshard")  # where parameters are no plain ones of their module in its call


def expert_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Experts that an adapter would reach: before Transformers 5.0 each of their matrices is a linear layer, and since
    then PEFT adapts the stacked weights instead; and a router that it cannot wrap."""
    if plan.adapter is None:
        return
    yield from _router(plan.adapter, model)
    release = plan.stack.versions.get("transformers")
    if at_least(release, STACKED_EXPERTS.since):
        yield from _converted(plan, plan.adapter, model)
    else:
        yield from _looped(plan.adapter, model, release)
    if plan.adapter.options.get(stacked.PARAMETERS):
        yield from _named(plan, plan.adapter, model)
    if any(op.folds for block in model.blocks for op in block.ops):
        yield from _folded(plan, plan.adapter)


def _looped(given: Adapter, model: Model, release: str | None) -> Iterator[Problem]:
    path = reached(given, model)
    if path and (model.family not in LOOPED_EXPERTS.names or given.kind not in LORA_KINDS):
        allowed = f"with transformers {release} experts are linear layers; {given.kind} of those of {model.family}"
        fix = "Name the modules of the attention alone."
        yield Problem("adapter.targets", f"goes to {path}", f"{allowed} is not written yet", fix)
    inside = [name for name in given.train_extra if f".{name}." in f".{path}."]
    if inside:
        yield Problem("adapter.train_extra", f"found {inside[0]!r}", "experts trained whole are not written yet")


def _converted(plan: Plan, given: Adapter, model: Model) -> Iterator[Problem]:
    """Targets that PEFT reads as parameters, or fails to."""
    kind, versions = str(plan.keys().get("model_type")), plan.stack.versions
    peft = versions.get("peft")
    text = isinstance(given.targets, str) and not stacked.found(given, versions)
    read = text and given.kind in ("lora", "dora") and renamed(kind) is not None
    if read and at_least(peft, LISTS.release) and not at_least(peft, TEXTS.release):
        found = f"found {given.targets!r} with peft {peft}"
        allowed = (
            f"for this model it takes a text letter by letter, and the run fails; since {TEXTS.release} it reads it"
        )
        yield Problem("adapter.targets", found, allowed, "Write a list of names, or run a later PEFT.")
        return
    lone = stacked.apart(given, model, kind, versions)
    if lone is not None:
        name, parts = lone
        allowed = f"PEFT adapts {' and '.join(parts)} together, which are one parameter, or fails"
        yield Problem("adapter.targets", f"has {name!r} alone", allowed, f"Name {' and '.join(parts)}, or neither.")


def _named(plan: Plan, given: Adapter, model: Model) -> Iterator[Problem]:
    """Parameters that are named by themselves."""
    path, peft = f"adapter.options.{stacked.PARAMETERS}", plan.stack.versions.get("peft")
    if not at_least(peft, PARAMETERS.release):
        allowed = f"PEFT's adapters of parameters are known from {PARAMETERS.release} on"
        yield Problem("stack.versions.peft", f"found {peft}", allowed)
    for name in given.options[stacked.PARAMETERS]:
        if not any(stacked.meant(one, (name,)) for one, _ in stacked.parameters(model)):
            allowed = "a parameter of routed experts or of their router is needed: mlp.experts.gate_up_proj"
            yield Problem(path, f"{name!r} fits none", allowed, "The weights of linear layers go into targets.")


def _folded(plan: Plan, given: Adapter) -> Iterator[Problem]:
    """What PEFT's wrapper of a parameter does not take."""
    refused = "PEFT's adapters of parameters (here of experts or their router) take none, and the run fails"
    if given.dropout:
        yield Problem("adapter.dropout", f"found {given.dropout:g}", refused, "Set it to 0.")
    if given.kind == "dora":
        yield Problem("adapter.kind", "found 'dora'", refused, "Use lora, or leave experts out of the targets.")
    if given.options.get("lora_bias"):
        yield Problem("adapter.options.lora_bias", "given", refused, "Set it to false.")
    if plan.parallel.strategy in UNREAD:
        allowed = "how PEFT's adapters of parameters find what this strategy keeps elsewhere was not read"
        fix = "Use fsdp2 or ddp, or leave experts out of the targets."
        yield Problem("parallel.strategy", f"found {plan.parallel.strategy!r}", allowed, fix)


def _router(given: Adapter, model: Model) -> Iterator[Problem]:
    """A router that is a linear layer with two results, which PEFT wraps and then fails on.

    Source: transformers/models/llama4/modeling_llama4.py, Llama4Router (5.24.0); peft/tuners/lora/layer.py, Linear.
    """
    routers = [op for block in model.blocks for op in block.ops if isinstance(op.spec, SigmoidRouter)]
    if not routers:
        return
    targets = given.targets
    named = targets if isinstance(targets, list | tuple) else [] if targets is None else [targets]
    if any(name == ALL_LINEAR or name.rpartition(".")[2] == "router" for name in named):
        found = f"found {ALL_LINEAR!r}" if targets == ALL_LINEAR else "names the router"
        allowed = f"PEFT wraps {routers[0].name} too, whose two results its layers do not know, and the run fails"
        yield Problem("adapter.targets", found, allowed, "Name the modules: q_proj, k_proj, v_proj, o_proj and others.")
