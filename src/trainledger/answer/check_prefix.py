"""Where prefix tuning cannot run, or not as it is known here: each by its key, with the reason."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.peft import PREFIX_CACHE, PREFIX_FAMILIES
from trainledger.facts.versions import at_least
from trainledger.model.program import Attention, FilledKeys, Model, WrittenAttention
from trainledger.model.prompts import PREFIX_KIND, prefix_of
from trainledger.plan.schema import Plan

WHOLE = ("none", "ddp", "zero1", "zero2")  # strategies that leave every weight whole


def prefix_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan whose adapter is a prefix."""
    if plan.adapter is None or plan.adapter.kind != PREFIX_KIND:
        return
    if plan.stack.recompute.kind != "none":
        reason = "PEFT refuses prefix tuning of a recomputed model: a recomputed layer is given no cache, so no prefix"
        yield Problem("stack.recompute", f"found {plan.stack.recompute.kind!r}", reason, "Set recompute to none.")
    for package, since in (("peft", PREFIX_CACHE.peft), ("transformers", PREFIX_CACHE.transformers)):
        release = plan.stack.versions.get(package)
        if not at_least(release, since):
            known = f"prefix tuning as {package} runs it from {since} on is known"
            yield Problem(f"stack.versions.{package}", f"found {release}", known)
    if plan.parallel.strategy not in WHOLE:
        reason = f"a prefix whose table is gathered is not written yet; {', '.join(WHOLE)} can be estimated"
        yield Problem("parallel.strategy", f"found {plan.parallel.strategy!r}", reason)
    if plan.stack.options.get("keep_outputs"):
        reason = "with a prefix the outputs hold every layer's keys and values, and how long is not written yet"
        yield Problem("stack.options.keep_outputs", "given", reason)


def prefix_model_problems(model: Model) -> Iterator[Problem]:
    """Problems of a model that is given a prefix."""
    prefix = prefix_of(model)
    if prefix is None:
        return
    path, found = "model.model_type", f"found {model.family!r} with prefix tuning"
    specs = [op.spec for block in model.blocks for op in block.ops if isinstance(op.spec, Attention)]
    if not model.causal or model.head.pooled:
        yield Problem(path, found, "a prefix of causal language models alone is known: others are given no cache")
    if any(isinstance(op.spec, FilledKeys) for block in model.blocks for op in block.ops):
        yield Problem(path, found, "keys and values that come out of a latent, which alone is cached, join no prefix's")
    grouped = any(spec.kv_heads != spec.heads for spec in specs)
    if grouped and model.family in PREFIX_FAMILIES.other_heads:
        yield Problem(path, found, "PEFT makes a key for every query head, and the model has fewer: they do not join")
    if any(isinstance(spec, WrittenAttention) for spec in specs):
        yield Problem(path, found, "a prefix of classes that write attention out themselves is not written yet")
    if len({(spec.kv_heads, spec.head) for spec in specs}) > 1:
        yield Problem(path, found, "layers whose keys differ in shape are not written yet")
    shortest = min((spec.window for spec in specs if spec.window), default=0)
    if model.family in PREFIX_FAMILIES.windows and 0 < shortest <= prefix.count:
        reason = f"a layer with a window of {shortest} keeps no longer prefix, and shorter ones are not written yet"
        yield Problem("adapter.options.num_virtual_tokens", f"found {prefix.count}", reason)
