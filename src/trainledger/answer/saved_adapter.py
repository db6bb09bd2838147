"""What is saved of the base model of an adapter's run: embeddings beside it, or all that it is merged into."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.saved_sizes import dtype_of, saved_dtype
from trainledger.facts.checkpoints import EMBEDDINGS, MERGED, PEFT_EXCLUDES
from trainledger.facts.dtypes import DTYPES
from trainledger.facts.litgpt import NAME as LITGPT
from trainledger.facts.versions import at_least
from trainledger.model.counts import kinds, layered
from trainledger.model.program import Model, Weight
from trainledger.plan.schema import Plan

TOKENS, ALONE = "trainable_token_indices", "adapter"


def targeted(plan: Plan, model: Model) -> Iterator[Weight]:
    """The base's weights of embeddings and heads that the adapter goes to, a tied one under each of its names."""
    adapter = plan.adapter
    if adapter is None or plan.stack.framework not in PEFT_EXCLUDES or adapter.options.get(TOKENS):
        return
    if not at_least(plan.stack.versions.get("peft"), EMBEDDINGS.since):
        return
    weights = [weight for weight, _ in kinds(model)]
    for module in EMBEDDINGS.modules:
        if any(weight.tuned and _of(weight, module) and "modules_to_save" not in weight.name for weight in weights):
            own = [weight for weight in weights if not weight.tuned and _of(weight, module)]
            yield from own or model.embeddings[:1]


def merged(plan: Plan, model: Model) -> Iterator[tuple[tuple[int, ...], int]]:
    """Bytes of the base's weights of each kind of layer, and how many such layers, where the adapter is merged into
    them: torchtune writes them as they are, codes in the dtype that they stand for; LitGPT in the adapter's dtype."""
    adapter = plan.adapter
    alone = plan.save is not None and plan.save.format == ALONE
    if adapter is None or alone or plan.stack.framework not in MERGED:
        return
    own = DTYPES[adapter.dtype] if plan.stack.framework == LITGPT else None
    for weights, count in layered(model):
        base = [weight for weight in weights if not weight.tuned]
        dtypes = [own or (one.packed.loaded if one.packed else dtype_of(plan, one)) for one in base]
        pairs = zip(base, dtypes, strict=True)
        yield tuple(saved_dtype(plan, dtype).bytes_of(weight.elements) for weight, dtype in pairs), count


def _of(weight: Weight, module: str) -> bool:
    """Whether a weight is the module's."""
    return module in weight.name.split(".")
