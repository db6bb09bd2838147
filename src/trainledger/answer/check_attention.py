"""Attention that a plan's word cannot run, or not as it is known here."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.kernels_attention import WORDS, Kernel
from trainledger.model.program import Model, SinkAttention
from trainledger.plan.schema import Plan


def attention_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of sinks: Transformers runs them written out in Python, or by kernels that are not known here.

    Source: transformers/models/gpt_oss/modeling_gpt_oss.py, GptOssPreTrainedModel (5.24.0).
    """
    sinks = any(isinstance(op.spec, SinkAttention) for block in model.blocks for op in block.ops)
    word = plan.stack.attention
    if sinks and WORDS[word].kernels != (Kernel.EAGER,):
        allowed = "PyTorch's own call and flash-attn 2 know no sinks, and kernels that do are not written yet"
        yield Problem("stack.attention", f"found {word!r}", allowed, "Write eager.")
