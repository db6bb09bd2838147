"""Attention that a plan's word cannot run, or not as it is known here."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.kernels_attention import TAKES, WORDS, Kernel
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.model.program import Attention, ChunkAttention, Model, SinkAttention, WrittenAttention
from trainledger.plan.schema import Plan


def attention_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of sinks: Transformers runs them written out in Python, or by kernels that are not known here;
    torchtitan by flex attention.

    Llama 4's class knows no flash-attn 2; which takes no heads as wide as Gemma 4's full layers have.

    Sources: transformers/models/llama4/modeling_llama4.py, Llama4PreTrainedModel;
    transformers/models/gpt_oss/modeling_gpt_oss.py, GptOssPreTrainedModel (5.24.0); torchtitan,
    models/gpt_oss/model.py (1690e0aea); flash-attention, csrc/flash_attn/flash_api.cpp (2.8).
    """
    sinks = any(isinstance(op.spec, SinkAttention) for block in model.blocks for op in block.ops)
    word = plan.stack.attention
    if sinks and plan.stack.framework == TORCHTITAN:
        if WORDS[word].kernels != (Kernel.FLEX,):
            yield Problem(
                "stack.attention", f"found {word!r}", "torchtitan runs sinks by flex attention", "Write flex."
            )
    elif sinks and WORDS[word].kernels != (Kernel.EAGER,):
        allowed = "PyTorch's own call and flash-attn 2 know no sinks, and kernels that do are not written yet"
        yield Problem("stack.attention", f"found {word!r}", allowed, "Write eager.")
    yield from _written_problems(plan, model)
    if WORDS[word].kernels == (Kernel.PACKAGE,) and _chunked(model):
        allowed = "this class has no code for flash-attn 2, which knows no chunks"
        yield Problem("stack.attention", f"found {word!r}", allowed, "Write sdpa.")
    if WORDS[word].kernels == (Kernel.PACKAGE,) and _widest(model) > TAKES[Kernel.FLASH].largest:
        allowed = f"flash-attn 2 takes heads of at most {TAKES[Kernel.FLASH].largest}, and the model has wider ones"
        yield Problem("stack.attention", f"found {word!r} with heads of {_widest(model)}", allowed, "Write sdpa.")


def _written_problems(plan: Plan, model: Model) -> Iterator[Problem]:
    """Problems of classes that write attention out themselves.

    Source: transformers/models/{falcon,bloom,mpt}/modeling_*.py (5.24.0), `_supports_sdpa`, FalconFlashAttention2.
    """
    own = (op.spec for block in model.blocks for op in block.ops if isinstance(op.spec, WrittenAttention))
    spec, word = next(own, None), plan.stack.attention
    if spec is None:
        return
    kernels, path, found = WORDS[word].kernels, "stack.attention", f"found {word!r} with {model.family}"
    if not spec.how.calls and kernels != (Kernel.EAGER,):
        yield Problem(path, found, "this class writes attention out in Python and calls no kernel", "Write eager.")
    elif Kernel.FLEX in kernels:
        yield Problem(path, found, "this class has no code for flex attention", "Write sdpa.")
    elif Kernel.PACKAGE in kernels and spec.how.biased:
        yield Problem(path, found, "flash-attn 2 is handed no biases by distance: the class refuses it", "Write sdpa.")
    if plan.parallel.cp > 1:
        allowed = "1 is needed: this class calls attention itself, and ranks that share a sequence cannot replace it"
        yield Problem("parallel.cp", f"found {plan.parallel.cp} with {model.family}", allowed)


def _widest(model: Model) -> int:
    return max(
        (op.spec.head for block in model.blocks for op in block.ops if isinstance(op.spec, Attention)), default=0
    )


def _chunked(model: Model) -> bool:
    return any(isinstance(op.spec, ChunkAttention) for block in model.blocks for op in block.ops)
