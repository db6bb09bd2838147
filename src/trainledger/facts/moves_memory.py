"""Advice on one rank's own memory: recompute, attention, loss, optimizer, dtypes, batch, adapter, allocator."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.fit_knobs import FREEZE
from trainledger.facts.megatron import FRAMEWORKS as MEGATRONS
from trainledger.facts.move_row import OUT, AtLeast, Last, Move, Plus, Price, Set, Times
from trainledger.facts.names import FRAMEWORKS

CHECKPOINT = Source("PyTorch activation checkpointing", "docs: torch.utils.checkpoint, use_reentrant", "2.13")
KORTHIKANTI = Source("Reducing Activation Recomputation in Large Transformer Models", "arXiv:2205.05198", "2022-05")
FLASH = Source("FlashAttention-2", "arXiv:2307.08691; github.com/Dao-AILab/flash-attention", "2023-07")
LIGER = Source(
    "Liger Kernel", "arXiv:2410.10989; github.com/linkedin/Liger-Kernel, fused linear cross entropy", "2024-10"
)
TUNE_LOSS = Source("torchtune CEWithChunkedOutputLoss", "torchtune/modules/loss", "v0.6")
OPTIM = Source("PyTorch optimizers, foreach and fused", "docs: torch.optim, implementations", "2.13")
IN_BACKWARD = Source("PyTorch tutorial: optimizer step in backward", "pytorch.org/tutorials/intermediate", "2023-10")
BNB = Source("8-bit Optimizers via Block-wise Quantization", "arXiv:2110.02861; bitsandbytes", "2021-10")
TORCHAO = Source("torchao low-bit optimizers, which take DTensors", "torchao/optim/README.md", "0.18.0")
ADAFACTOR = Source("Adafactor", "arXiv:1804.04235", "2018-04")
LION = Source("Symbolic Discovery of Optimization Algorithms (Lion)", "arXiv:2302.06675", "2023-02")
MIXED = Source("Mixed Precision Training", "arXiv:1710.03740, section 3.1", "2017-10")
PRECISE = Source("Megatron-Core precision-aware optimizer", "megatron/core/optimizer/optimizer_config.py", "2026-08")
GPIPE = Source("Gradient accumulation", "the sum of micro-batches' gradients is that of their batch", "by definition")
LORA = Source("LoRA", "arXiv:2106.09685", "2021-06")
QLORA = Source("QLoRA", "arXiv:2305.14314", "2023-05")
EXPANDABLE = Source("PyTorch CUDA caching allocator settings", "docs: notes/cuda.html, PYTORCH_CUDA_ALLOC_CONF", "2.13")

NO_CHOICE = ("torchtitan", "pithtrain")  # their settings name AdamW and Adam alone
OTHERS = tuple(name for name in FRAMEWORKS.names if name not in MEGATRONS)
EAGER = ("transformers", "deepspeed", "torch", "colossalai")
CHOSEN = tuple(name for name in OTHERS if name not in NO_CHOICE)
TUNED = ("sft", "dpo", "kto", "orpo", "simpo", "reward", "distill")
ADAMS = ("adamw", "adam")
FRAMEWORK = "stack.framework"
KIND = "stack.recompute.kind"
WHOLE = ("adapter", Set(False))
WHOLE_MODEL = (WHOLE, ("trainable", ("all",)), ("quantization", Set(False)))
PAGED = "bitsandbytes; the states lie in managed memory, on the device while there is room, else on the host"
DTENSORS = ("parallel.strategy", ("fsdp2", "hsdp"))
PLAIN = ("parallel.strategy", ("none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp1-noshard"))
ROUNDING = "optimizer states are kept in blocks of 8 bits"

RECOMPUTE = (
    Move(
        "recompute every layer", "recompute", (("stack.recompute", {"kind": "full", "reentrant": False}),),
        Price.RECOMPUTE, CHECKPOINT, ((FRAMEWORK, (*EAGER, "fsdp_qlora")), (KIND, ("none", "selective"))),
    ),
    Move(
        "recompute every layer", "recompute", (("stack.recompute", {"kind": "full"}),), Price.RECOMPUTE, CHECKPOINT,
        ((FRAMEWORK, ("torchtitan", "torchtune", "litgpt")), (KIND, ("none", "selective"))),
    ),
    Move(
        "recompute every second layer", "recompute",
        (("stack.recompute", {"kind": "selective", "policy": "every 2nd layer"}),),
        Price.RECOMPUTE, CHECKPOINT, ((FRAMEWORK, (*EAGER, "torchtitan")), (KIND, ("none",))),
    ),
    Move(
        "recompute by operation", "recompute", (("stack.recompute", {"kind": "selective", "policy": "op"}),),
        Price.RECOMPUTE, CHECKPOINT, ((FRAMEWORK, ("torchtitan",)), (KIND, ("none",))),
    ),
    Move(
        "recompute the attention core", "recompute",
        (("stack.recompute", {"kind": "selective", "modules": ["core_attn"]}),),
        Price.RECOMPUTE, KORTHIKANTI, ((FRAMEWORK, MEGATRONS), (KIND, ("none",))),
    ),
    Move(
        "recompute every layer", "recompute",
        (("stack.recompute", {"kind": "full", "method": "uniform", "num_layers": 1}),),
        Price.RECOMPUTE, KORTHIKANTI, ((FRAMEWORK, MEGATRONS), (KIND, ("none", "selective"))),
    ),
)  # fmt: skip

ATTENTION = (
    Move(
        "attention by FlashAttention-2", "attention", (("stack.attention", "flash"),), Price.FREE, FLASH,
        ((FRAMEWORK, EAGER), ("stack.attention", ("eager", "sdpa", "mem-efficient", "flex")),
         ("precision.compute", ("bf16", "fp16"))),
        needs="the flash-attn package, and an Ampere device or newer",
    ),
    Move(
        "attention by PyTorch's fused call", "attention", (("stack.attention", "sdpa"),), Price.FREE, OPTIM,
        ((FRAMEWORK, OTHERS), ("stack.attention", ("eager",))),
    ),
    Move(
        "attention without a score matrix", "attention", (("stack.attention", "flash"),), Price.FREE, FLASH,
        ((FRAMEWORK, MEGATRONS), ("stack.attention", ("unfused", "eager"))),
        needs="Transformer Engine's or flash-attn's kernel",
    ),
)  # fmt: skip

LOSS = (
    Move(
        "loss fused with the head, in chunks (Liger)", "loss",
        (("stack.loss", "fused-linear"), ("stack.kernels", Plus("liger"))), Price.FREE, LIGER,
        ((FRAMEWORK, ("transformers", "deepspeed", "torch")), ("stack.loss", ("full-fp32", "full"))),
        needs="the liger-kernel package, and a model type that it patches",
        numerics="the head's gradient is summed over chunks in the weights' dtype",
    ),
    Move(
        "loss in chunks of the sequence", "loss", (("stack.loss", "chunked"),), Price.FREE, TUNE_LOSS,
        ((FRAMEWORK, ("torchtune", "torchtitan")), ("stack.loss", ("full-fp32", "full", "vocab-parallel"))),
    ),
    Move(
        "loss of logits that stay spread over tp", "loss", (("stack.loss", "vocab-parallel"),), Price.FREE, KORTHIKANTI,
        (("parallel.tp", AtLeast(2)), ("stack.loss", ("full-fp32", "full"))),
    ),
    Move(
        "loss in 16 bits", "loss", (("stack.loss", "full"),), Price.NUMERICS, MIXED,
        ((FRAMEWORK, EAGER), ("stack.loss", ("full-fp32",))), numerics="logits are not widened to fp32 for the loss",
    ),
)  # fmt: skip

OPTIMIZER = (
    Move(
        "fused optimizer step", "step", (("optimizer.implementation", "fused"),), Price.FREE, OPTIM,
        (("optimizer.implementation", ("foreach", "loop")),),
    ),
    Move(
        "optimizer step one weight at a time", "step", (("optimizer.implementation", "loop"),), Price.LAUNCHES, OPTIM,
        (("optimizer.implementation", ("foreach",)),),
    ),
    Move(
        "optimizer step within backward", "step",
        (("optimizer.in_backward", True), ("optimizer.grad_clip", None), ("batch.accumulation", 1),
         ("batch.micro_batch", Times()), ("batch.global", OUT)),
        Price.CONVERGENCE, IN_BACKWARD,
        (("optimizer.in_backward", (False,)), ("adapter", Set(False)), (FRAMEWORK, (*EAGER[:1], "torch", "torchtune"))),
        numerics="no clipping by the norm of all gradients, and no accumulation",
    ),
    Move(
        "8-bit optimizer states", "states", (("optimizer.name", "adamw-8bit"), ("optimizer.implementation", OUT)),
        Price.NUMERICS, BNB, (("optimizer.name", ADAMS), (FRAMEWORK, CHOSEN), PLAIN), needs="bitsandbytes",
        numerics=ROUNDING,
    ),
    Move(
        "8-bit optimizer states", "states",
        (("optimizer.name", "adamw-torchao-8bit"), ("optimizer.implementation", OUT)), Price.NUMERICS, TORCHAO,
        (("optimizer.name", ADAMS), (FRAMEWORK, CHOSEN), DTENSORS), needs="torchao", numerics=ROUNDING,
    ),
    Move(
        "paged 8-bit optimizer states", "states",
        (("optimizer.name", "paged-adamw-8bit"), ("optimizer.implementation", OUT)), Price.NUMERICS, BNB,
        (("optimizer.name", (*ADAMS, "adamw-8bit")), (FRAMEWORK, CHOSEN), PLAIN), needs=PAGED, numerics=ROUNDING,
    ),
    Move(
        "paged optimizer states", "states",
        (("optimizer.name", "paged-adamw-32bit"), ("optimizer.implementation", OUT)), Price.HOST, BNB,
        (("optimizer.name", ADAMS), (FRAMEWORK, CHOSEN), PLAIN), needs=PAGED,
    ),
    Move(
        "optimizer moments in bf16", "states", (("optimizer.states", {"first": "bf16", "second": "bf16"}),),
        Price.NUMERICS, PRECISE, (("optimizer.name", ADAMS), (FRAMEWORK, MEGATRONS)),
        numerics="both moments are rounded to bf16",
    ),
    Move(
        "Adafactor in place of AdamW", "states", (("optimizer.name", "adafactor"), ("optimizer.implementation", OUT)),
        Price.CONVERGENCE, ADAFACTOR, (("optimizer.name", ADAMS), (FRAMEWORK, CHOSEN)),
        numerics="the second moment is kept as rows and columns, the first not at all",
    ),
    Move(
        "Lion in place of AdamW", "states", (("optimizer.name", "lion"), ("optimizer.implementation", OUT)),
        Price.CONVERGENCE, LION, (("optimizer.name", ADAMS), (FRAMEWORK, CHOSEN)),
        numerics="updates are the sign of one moment; its learning rate is 3 to 10 times lower",
    ),
)  # fmt: skip

DTYPES = (
    Move(
        "what is not quantised left in bf16", "dtypes", (("precision.weights", "bf16"),), Price.NUMERICS, QLORA,
        (("precision.weights", ("fp32",)), ("quantization", Set()), ("adapter", Set())),
        needs="a k-bit preparation that casts nothing to fp32",
        numerics="frozen embeddings, norms and head stay in 16 bits",
    ),
    Move(
        "weights, gradients and states in bf16", "dtypes",
        (("precision.weights", "bf16"), ("precision.gradients", OUT), ("precision.master", OUT),
         ("precision.autocast", OUT)),
        Price.NUMERICS, MIXED, (("precision.weights", ("fp32",)), ("precision.compute", ("bf16",)), WHOLE),
        numerics="small updates of bf16 weights are lost",
    ),
    Move(
        "no second buffer of gradients", "dtypes", (("precision.main_gradients", None),), Price.NUMERICS, MIXED,
        (("precision.main_gradients", Set()),), numerics="gradients are summed in their own dtype",
    ),
    Move(
        "gradients in bf16", "dtypes", (("precision.gradients", "bf16"), ("precision.reduce", OUT)),
        Price.NUMERICS, MIXED, (("precision.gradients", ("fp32",)), ("precision.weights", ("bf16",)), WHOLE),
        numerics="gradients are summed in bf16 over micro-batches and ranks",
    ),
    Move(
        "adapter in bf16", "dtypes", (("adapter.dtype", "bf16"), ("precision.gradients", OUT)), Price.NUMERICS, LORA,
        (("adapter.dtype", ("fp32",)),), numerics="small updates of a bf16 adapter are lost",
    ),
    Move(
        "norms left in the weights' dtype", "norms", (("precision.norms", None),), Price.NUMERICS, QLORA,
        (("precision.norms", ("fp32",)), ("precision.weights", ("bf16", "fp16"))),
        numerics="norms and what follows them are computed in 16 bits",
    ),
)  # fmt: skip

BATCH = (
    Move(
        "half the micro-batch, twice the accumulation", "batch",
        (("batch.micro_batch", Times(1, 2)), ("batch.accumulation", Times(2)), ("batch.loss_tokens", Times())),
        Price.LAUNCHES, GPIPE, (("batch.micro_batch", AtLeast(2)),),
    ),
    Move(
        "a quarter of the micro-batch, four times the accumulation", "batch",
        (("batch.micro_batch", Times(1, 4)), ("batch.accumulation", Times(4))),
        Price.SMALLER, GPIPE, (("batch.micro_batch", AtLeast(4)),),
    ),
    Move(
        "half the sequence (truncate, or pack into shorter rows)", "batch", (("batch.sequence", Times(1, 2)),),
        Price.DATA, GPIPE, (("batch.sequence", AtLeast(512)),),
    ),
)  # fmt: skip

ADAPTER = (
    Move(
        "LoRA of rank 16 on all linear layers", "trained",
        (("adapter", {"kind": "lora", "r": 16, "targets": "all-linear"}), ("precision.gradients", OUT),
         ("precision.master", OUT), ("optimizer.implementation", OUT), ("trainable", OUT)),
        Price.CONVERGENCE, LORA, (("adapter", Set(False)), ("task", TUNED), (FRAMEWORK, EAGER)),
        numerics="the model itself is not trained", needs="peft",
    ),
    Move(
        "only the last quarter of the layers trained", "trained", (("trainable", Last(1, 4)),), Price.CONVERGENCE,
        FREEZE, (*WHOLE_MODEL, ("task", TUNED), (FRAMEWORK, ("transformers", "deepspeed", "torch"))),
        numerics="all before them, the embeddings, the last norm and the head stay as they are",
    ),
    Move(
        "half the adapter's rank", "trained", (("adapter.r", Times(1, 2)),), Price.CONVERGENCE, LORA,
        (("adapter.r", AtLeast(2)),), numerics="half the trained weights",
    ),
    Move(
        "frozen weights in NF4", "base", (("quantization", {"kind": "nf4", "double": True}),), Price.NUMERICS, QLORA,
        (("adapter", Set()), ("quantization", Set(False))), needs="bitsandbytes",
        numerics="frozen weights are rounded to 4 bits",
    ),
    Move(
        "scales of the quantised weights quantised too", "base", (("quantization.double", True),), Price.NUMERICS,
        QLORA, (("quantization.kind", ("nf4", "fp4")), ("quantization.double", (False,))),
        numerics="scales are rounded to 8 bits",
    ),
)  # fmt: skip

ALLOCATOR = (
    Move(
        "expandable segments", "allocator", (("stack.allocator.expandable_segments", True),), Price.FREE,
        EXPANDABLE, (("stack.allocator.expandable_segments", (None, False)),),
    ),
    Move(
        "cached blocks collected from 80 % on", "allocator",
        (("stack.allocator.garbage_collection_threshold", 0.8),), Price.LAUNCHES, EXPANDABLE,
        (("stack.allocator.expandable_segments", (None, False)),),
    ),
)  # fmt: skip

MEMORY_MOVES: tuple[Move, ...] = (
    *RECOMPUTE, *ATTENTION, *LOSS, *OPTIMIZER, *DTYPES, *BATCH, *ADAPTER, *ALLOCATOR,
)  # fmt: skip
