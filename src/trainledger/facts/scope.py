"""What can be estimated so far, by key of the plan: the mechanisms that the ledger has rules for."""

from __future__ import annotations

OWN_MODELS = ("litgpt", "torchtune")  # frameworks that run model code of their own
SCOPE: dict[str, tuple[str | None, ...]] = {
    "task": ("pretrain", "sft", "simpo", "orpo"),
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
    "stack.framework": ("transformers", "deepspeed", "torch", "litgpt", "torchtune", "fsdp_qlora", "colossalai"),
    "stack.loss": ("full-fp32", "full", "chunked", "fused-linear", None),
    "stack.recompute.kind": ("none", "full", "selective", None),
    "stack.kernels": ("liger", "foak"),
    "offload.optimizer": ("zero1", "zero2", "zero3", "fsdp1", "fsdp1-noshard", "fsdp2", "hsdp"),
    "offload.params": ("zero3", "fsdp1", "fsdp1-noshard", "fsdp2", "hsdp"),
    "offload.activations": (),
    "precision.compute": ("fp32", "bf16", "fp16"),
    "precision.weights": ("fp32", "bf16", "fp16"),
}
OWN_SCOPE: dict[str, dict[str, tuple[str | bool | None, ...]]] = {
    "litgpt": {
        "parallel.strategy": ("none", "fsdp1"),
        "stack.loss": ("chunked",),
        "stack.recompute.kind": ("none", "full"),
        "stack.compile": (False, None),
        "quantization.kind": ("nf4", "fp4", None),
        "adapter.kind": ("lora", None),
    },
    "torchtune": {
        "parallel.strategy": ("none", "fsdp1", "fsdp2"),
        "stack.loss": ("full-fp32", "chunked"),
        "stack.recompute.kind": ("none", "full"),
        "offload.activations": ("cpu", None),
        "stack.compile": (True, False, None),
        "quantization.kind": ("nf4", None),
        "adapter.kind": ("lora", None),
    },
}
