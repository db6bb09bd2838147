"""What of adapters and quantised bases cannot be estimated: each by its key, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainledger.answer.check_patterns import pattern_problems
from trainledger.base.problems import Problem
from trainledger.facts.peft import DORA_SINCE, LORA_KINDS
from trainledger.facts.peft_experts import FINDERS
from trainledger.facts.peft_methods import METHODS
from trainledger.facts.quantization import QUANT_KINDS, When
from trainledger.facts.scope import OWN_MODELS, SCOPE
from trainledger.facts.versions import at_least
from trainledger.ledger.losses import CHUNKED, FUSED
from trainledger.model.program import Embed, Linear, Model
from trainledger.model.prompts import PREFIX_KIND, PROMPT_KINDS
from trainledger.model.stacked import PARAMETERS
from trainledger.model.weights import LowRank
from trainledger.plan.schema import Plan
from trainledger.plan.training import Adapter

OVER = {"": ("lora", "ln-tuning"), "nf4": (*LORA_KINDS, "ln-tuning"), "fp4": (*LORA_KINDS, "ln-tuning")}  # by base
LATER = {
    "layers_pattern": "layers are told by the first number in a module's path",
}


def adapter_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of the plan's adapter and quantization."""
    yield from _quantization(plan)
    if plan.adapter is None:
        return
    if plan.adapter.kind not in SCOPE["adapter.kind"]:
        known = f"{', '.join(str(kind) for kind in SCOPE['adapter.kind'])} can be estimated so far"
        yield Problem("adapter.kind", f"found {plan.adapter.kind!r}", known)
        return
    if plan.adapter.kind in (*PROMPT_KINDS, PREFIX_KIND):
        yield from _prompt(plan.adapter)
    elif plan.adapter.kind == "trainable-tokens":
        if not plan.adapter.options.get("token_indices"):
            yield Problem("adapter.options.token_indices", "left out", "the numbers of the rows that are trained")
    else:
        yield from _targets(plan.adapter)
    yield from _release(plan.adapter, plan.stack.versions.get("peft"))
    yield from _options(plan.adapter, plan.stack.versions)
    yield from pattern_problems(plan.adapter.options)


def _targets(given: Adapter) -> Iterator[Problem]:
    if given.targets is None and not given.options.get(PARAMETERS):
        found = "PEFT has no default targets for this model type, or none that is known here"
        yield Problem("adapter.targets", "left out", found, "Name the modules, or write all-linear.")
    elif isinstance(given.targets, str):
        try:
            re.compile(given.targets)
        except re.error as error:
            yield Problem("adapter.targets", f"{given.targets[:40]!r}: {error}", "a text is a pattern of whole paths")


def _prompt(given: Adapter) -> Iterator[Problem]:
    if not given.options.get("num_virtual_tokens"):
        yield Problem("adapter.options.num_virtual_tokens", "left out", "how many rows stand before a sequence's own")
    if given.options.get("encoder_reparameterization_type") not in (None, "MLP"):
        yield Problem(
            "adapter.options.encoder_reparameterization_type", "not MLP", "only the network of linears is known"
        )
    if (given.options.get("num_transformer_submodules") or 1) > 1:
        yield Problem("adapter.options.num_transformer_submodules", "above 1", "decoders alone have prompts here")


def _release(given: Adapter, release: str | None) -> Iterator[Problem]:
    since = DORA_SINCE if given.kind == "dora" else METHODS[given.kind].since if given.kind in METHODS else ""
    if not at_least(release, since):
        yield Problem(
            "stack.versions.peft", f"found {release}", f"{given.kind} as PEFT runs it from {since} on is known"
        )


def _options(given: Adapter, versions: Mapping[str, str]) -> Iterator[Problem]:
    for name, reason in LATER.items():
        if given.options.get(name) is not None:
            yield Problem(f"adapter.options.{name}", "given", reason)
    lists = any(one.package in versions for one in FINDERS)  # it finds the linear layers, and hands PEFT their names
    if given.options.get("layers_to_transform") is not None and isinstance(given.targets, str) and not lists:
        found, allowed = f"given beside targets {given.targets!r}", "PEFT takes it with a list of modules alone"
        fix = "List the modules in adapter.targets, or write the layers into the pattern."
        yield Problem("adapter.options.layers_to_transform", found, allowed, fix)
    rows = given.options.get("trainable_token_indices")
    if rows is not None and not (isinstance(rows, list) and all(isinstance(one, int) for one in rows)):
        yield Problem(
            "adapter.options.trainable_token_indices", "no list of numbers", "rows of the input embedding, by number"
        )
    if given.kind == "boft" and (given.options.get("boft_n_butterfly_factor") or 1) > 1:
        allowed = "more than one factor needs PEFT's CUDA extension, whose work tensors are not known"
        yield Problem("adapter.options.boft_n_butterfly_factor", "above 1", allowed)


def _quantization(plan: Plan) -> Iterator[Problem]:
    given = plan.quantization
    if given is None:
        return
    halves = [one.name for one in QUANT_KINDS.values() if any(part.when is When.DOUBLE for part in one.parts)]
    if given.double and given.kind not in halves:
        allowed = f"scales are quantised themselves in {' and '.join(halves)} alone"
        yield Problem("quantization.double", f"found true with {given.kind}", allowed, "Set it to false.")
    if given.kind == "mxfp4":
        allowed = "Transformers trains MXFP4 models only when their weights are dequantised to 16 bits on loading"
        yield Problem("quantization.kind", "found 'mxfp4'", allowed, "Leave quantization out.")
    elif plan.trainable != "none" and plan.adapter is None:
        yield Problem("quantization", f"found {given.kind!r}", "quantised weights train only through an adapter")
    if plan.adapter is not None and plan.adapter.kind not in OVER.get(given.kind, OVER[""]):
        kind = plan.adapter.kind
        dora = (
            "DoRA dequantises the whole weight for its norms" if kind in LORA_KINDS else "its layers are others there"
        )
        yield Problem("adapter.kind", f"found {kind!r} over a base in {given.kind}", f"{dora}: not written yet")


def head_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """A loss that reads the head's weight itself passes an adapter on the head by."""
    if plan.stack.framework in OWN_MODELS or plan.stack.loss not in (FUSED, CHUNKED):
        return
    if any(isinstance(op.spec, Linear) and op.spec.adapter is not None for op in model.head.ops):
        found = f"found {plan.stack.loss!r} beside an adapter on the head"
        allowed = "it reads the head's own weight and passes the adapter by"
        yield Problem("stack.loss", found, allowed, "Set it to full-fp32, or leave the head out of adapter.targets.")


def magnitude_problems(model: Model) -> Iterator[Problem]:
    """DoRA of an embedding: what its norms and magnitudes hold is not written yet."""
    specs = [op.spec for op in model.prologue if isinstance(op.spec, Embed)]
    if any(isinstance(spec.adapter, LowRank) and spec.adapter.magnitude is not None for spec in specs):
        allowed = "dora can be estimated on linear layers alone"
        yield Problem("adapter.targets", "names the embedding", allowed, "Leave the embedding out, or use lora.")
