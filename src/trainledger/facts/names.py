"""Names that a plan may use and that form open lists: optimizers, frameworks, kernel sets, packages."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Names:
    """Names that a key of the plan may hold. A name here can be read; whether it is estimated is asked later."""

    names: tuple[str, ...]
    source: Source


LATER_OPTIMIZERS = Names(
    tuple(
        (
            "shampoo soap lomo adalomo grokadamw stable-adamw galore-adafactor badam schedule-free-sgd "
            "schedule-free-radam dion"
        ).split()
    ),
    Source("Transformers OptimizerNames and the optimizers' own papers", "transformers/training_args.py", "5.24.0"),
)
FRAMEWORKS = Names(
    tuple(
        (
            "transformers trl peft accelerate axolotl llama-factory unsloth ms-swift torchtune torchtitan "
            "litgpt lightning torch megatron megatron-deepspeed megatron-bridge nemo deepspeed colossalai "
            "fsdp_qlora pithtrain nanotron levanter composer gpt-neox verl openrlhf xtuner"
        ).split()
    ),
    Source("Training frameworks whose runs plans describe", "their own documentation", "2026-08"),
)
KERNELS = Names(
    tuple(("liger te apex unsloth foak flash-attn xformers cut-cross-entropy quack triton torchao deepgemm").split()),
    Source("Fused kernel sets", "Liger-Kernel, Transformer Engine, Apex, Unsloth, fms-acceleration", "2026-08"),
)
PACKAGES = Names(
    tuple(
        (
            "torch torchvision torchaudio torchao torchtitan torchtune transformers trl peft accelerate "
            "bitsandbytes deepspeed flash_attn flash-attn flash_attn_3 liger liger-kernel litgpt lightning "
            "megatron megatron-core megatron-lm megatron-deepspeed megatron-bridge transformer_engine "
            "transformer-engine apex nemo colossalai pithtrain unsloth axolotl llamafactory ms-swift "
            "xformers triton cuda cudnn cublas nccl rocm driver python container fsdp_qlora optimum "
            "auto-gptq gptqmodel autoawq hqq galore-torch datasets tokenizers safetensors numpy "
            "fms-acceleration fms-hf-tuning vllm verl openrlhf flash-linear-attention fla-core causal-conv1d"
        ).split()
    ),
    Source("Packages of a training environment", "their own distribution names", "2026-08"),
)
CHECKPOINT_DTYPES: dict[str, str] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
CHECKPOINT_DTYPES_SOURCE = Source(
    "Hugging Face config.json, keys dtype and torch_dtype", "transformers/configuration_utils.py", "5.24.0"
)
