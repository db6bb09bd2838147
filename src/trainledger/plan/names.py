"""The closed lists of the plan format: what a key may say."""

from __future__ import annotations

from typing import Literal

Task = Literal["pretrain", "sft", "dpo", "kto", "orpo", "simpo", "reward", "ppo", "grpo", "distill"]
AdapterKind = Literal[
    "lora", "dora", "adalora", "ia3", "vera", "loha", "lokr", "oft", "boft", "prefix-tuning", "prompt-tuning",
    "p-tuning", "ln-tuning", "fourierft", "trainable-tokens",
]  # fmt: skip
QuantizationKind = Literal["nf4", "fp4", "int8", "gptq4", "gptq8", "awq4", "fp8", "mxfp4"]
Float = Literal["fp32", "bf16", "fp16", "fp8"]
Stored = Literal["fp64", "fp32", "bf16", "fp16", "fp8", "int8"]
Compute = Literal["fp32", "bf16", "fp16", "fp8", "mxfp8", "nvfp4"]
Reduced = Literal["fp32", "bf16", "fp16"]
StateName = Literal["first", "second", "momentum"]
Implementation = Literal["loop", "foreach", "fused", "apex-fused", "cpu"]
Strategy = Literal[
    "none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "hsdp", "megatron-ddp", "megatron-distopt",
    "megatron-fsdp", "fsdp1-noshard",
]  # fmt: skip
Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipev"]
OffloadPlace = Literal["cpu", "nvme"]
PlaceName = Literal["on-chip", "device", "host", "nvme", "remote"]
Movable = Literal["weights", "gradients", "master_weights", "optimizer_states", "activations"]
CheckpointFormat = Literal[
    "safetensors", "trainer", "adapter", "torch", "torch-sharded", "deepspeed", "fsdp-full", "fsdp-sharded",
    "colossalai", "megatron-torch", "megatron-dist", "torchtune", "litgpt",
]  # fmt: skip
Packing = Literal["none", "packed", "padding-free"]
Longer = Literal["cut", "drop"]
Attention = Literal["flash", "sdpa", "mem-efficient", "flex", "eager", "unfused", "fused"]
RecomputeKind = Literal["none", "full", "selective"]
RecomputeMethod = Literal["uniform", "block"]
Loss = Literal[
    "full-fp32", "full", "chunked", "fused-linear", "vocab-parallel", "vocab-parallel-fused", "vocab-parallel-te"
]  # fmt: skip
