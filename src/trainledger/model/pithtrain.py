"""PithTrain's model of a plan, written from the program of its Transformers class.

Norms are torch.nn.RMSNorm, queries and keys turn by cosines and sines of buffers, experts' weights of gate and up lie
by themselves. Source: pithtrain/models/{qwen3_30b_a3b,deepseek_v2_lite}.py (287070f).
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.problems import InputError, Problem
from trainledger.facts.pithtrain import MODELS, NAME
from trainledger.model.program import Join, Model, Norm, NormKind
from trainledger.model.torchtitan import Style, rewritten
from trainledger.plan.schema import Plan

STYLE = Style(norm=NormKind.RMS_NATIVE, join=Join.CACHE, repeats=False, low=None)


def written(model: Model, plan: Plan) -> Model:
    """The model as PithTrain has it. Raises InputError for families that it has no module for."""
    if model.family not in MODELS:
        known = ", ".join(MODELS)
        found = f"found {model.family!r} with {NAME}"
        raise InputError([Problem("model.model_type", found, f"{known} can be estimated so far")])
    head = tuple(
        replace(op, spec=replace(op.spec, kind=STYLE.norm)) if isinstance(op.spec, Norm) else op
        for op in model.head.ops
    )
    return replace(
        model,
        blocks=tuple(rewritten(block, STYLE) for block in model.blocks),
        head=replace(model.head, ops=head),
        rotary=None,
        buffers=(),
        handed=replace(model.handed, numbered=False),
    )
