"""What can be estimated so far, by key of the plan: the mechanisms that the ledger has rules for."""

from __future__ import annotations

SCOPE: dict[str, tuple[str | None, ...]] = {
    "task": ("pretrain", "sft"),
    "adapter.kind": (
        "lora",
        "dora",
        "adalora",
        "ia3",
        "vera",
        "loha",
        "lokr",
        "oft",
        "boft",
        "fourierft",
        "ln-tuning",
        "prompt-tuning",
        "p-tuning",
        "prefix-tuning",
        "trainable-tokens",
    ),
    "parallel.strategy": ("none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp1-noshard", "fsdp2", "hsdp"),
    "stack.framework": ("transformers", "deepspeed", "torch"),
    "stack.loss": ("full-fp32", "full", "chunked", "fused-linear", None),
    "stack.recompute.kind": ("none", "full", "selective", None),
    "stack.kernels": ("liger", "foak"),
    "offload.optimizer": ("zero1", "zero2", "zero3", "fsdp1", "fsdp1-noshard", "fsdp2", "hsdp"),
    "offload.params": ("zero3", "fsdp1", "fsdp1-noshard", "fsdp2", "hsdp"),
    "offload.activations": (),
    "precision.compute": ("fp32", "bf16", "fp16"),
    "precision.weights": ("fp32", "bf16", "fp16"),
}
