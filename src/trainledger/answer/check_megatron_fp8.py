"""What of Megatron-Core's 8-bit products cannot be estimated, or does not run: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.dtypes import FP8
from trainledger.facts.transformer_engine_fp8 import RECIPES, recipe_of
from trainledger.ledger.mega_fp8 import DELAYED, WIDTHS
from trainledger.model.megatron_own import own_layers
from trainledger.plan.schema import Plan


def quantised_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of products and weights in 8 bits."""
    precision, stack = plan.precision, plan.stack
    if precision.compute not in WIDTHS:
        if precision.weights == FP8.name:
            found = f"found {precision.compute!r} with weights of 8 bits"
            yield Problem("precision.compute", found, f"{', '.join(WIDTHS)} read them")
        return
    if own_layers(plan):
        need = "Transformer Engine's layers are needed (stack.kernels: [te])"
        yield Problem("precision.compute", f"found {precision.compute!r} with Megatron's own layers", need)
    name = (precision.fp8.recipe if precision.fp8 else None) or DELAYED
    if recipe_of(name) is None:
        known = ", ".join(one for row in RECIPES for one in row.names)
        yield Problem("precision.fp8.recipe", f"found {name!r}", f"{known} can be estimated so far")
    elif name == DELAYED and stack.options.get("first_last_layers_bf16"):
        found = f"given with precision.fp8.recipe {name}"
        yield Problem("stack.options.first_last_layers_bf16", found, "Megatron-Core needs another recipe")
