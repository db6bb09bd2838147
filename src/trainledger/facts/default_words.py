"""What the rows of the defaults share: their sources, and the frameworks and strategies that conditions name."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.deepspeed import STAGES
from trainledger.facts.default_row import Condition

FORMAT = Source("trainledger's plan format", "trainledger schema")
ACCELERATE_FSDP = Source(
    "accelerate FullyShardedDataParallelPlugin", "accelerate/utils/dataclasses.py, set_mixed_precision", "1.15.0"
)
TRAINER = Source("Transformers TrainingArguments", "transformers/training_args.py", "5.24.0")
TRAINER_OPTIM = Source(
    "Transformers, default optimizer fused for PyTorch 2.8", "huggingface/transformers #37358", "2025-07"
)
FROM_PRETRAINED = Source("Transformers from_pretrained, dtype", "transformers/modeling_utils.py", "5.24.0")
FROM_PRETRAINED_4 = Source("Transformers from_pretrained, torch_dtype", "transformers/modeling_utils.py", "4.48.0")
CHECKPOINTING = Source("Transformers activation checkpointing", "transformers/modeling_utils.py", "5.24.0")
CHECKPOINTING_4 = Source("Transformers gradient_checkpointing_enable", "transformers/modeling_utils.py", "4.35 to 4.57")
MEGATRON = Source("Megatron-LM arguments", "megatron/training/arguments.py", "2026-08")
MEGATRON_OPTIM = Source("Megatron-Core optimizer", "megatron/core/optimizer/__init__.py", "2026-08")
TITAN = Source("torchtitan configuration", "torchtitan/config/job_config.py", "2025-08")
TITAN_CONFIGS = Source("torchtitan", "models/llama3 and models/gpt_oss, config_registry.py", "1690e0aea")
TORCH_OPTIM = Source("PyTorch optimizers, foreach by default on CUDA", "torch/optim/optimizer.py", "2.13")
TORCH_SDPA = Source("PyTorch scaled_dot_product_attention", "docs: torch.nn.functional", "2.13")
DEEPSPEED = Source("DeepSpeed configuration", "deepspeed/runtime/config.py", "0.19.6")
DEEPSPEED_CPU = Source("DeepSpeed ZeRO-Offload, DeepSpeedCPUAdam", "deepspeed/runtime/engine.py", "0.19.6")
LOSS = Source("Transformers ForCausalLMLoss", "transformers/loss/loss_utils.py", "5.24.0")
PEFT = Source("PEFT get_peft_model, autocast_adapter_dtype", "peft/mapping_func.py", "0.21.2")
LORA = Source("PEFT LoraConfig", "peft/tuners/lora/config.py", "0.21.2")
BNB = Source("Transformers BitsAndBytesConfig", "transformers/utils/quantization_config.py", "5.24.0")
GPTQ = Source("Transformers GPTQConfig and AwqConfig", "transformers/utils/quantization_config.py", "5.24.0")
EAGER_CLASSES = Source(
    "Transformers classes without sdpa",
    "transformers/models/{bloom,mpt}/modeling_*.py, _supports_sdpa",
    "4.54.1 to 5.24.0",
)

MEGATRONS = ("megatron", "megatron-deepspeed", "megatron-bridge", "nemo")
PRETRAINERS = (*MEGATRONS, "torchtitan", "pithtrain", "nanotron")
TITANS = ("torchtitan", "pithtrain")
TRAINERS = ("transformers", "trl", "peft", "accelerate", "axolotl", "llama-factory", "ms-swift", "unsloth")
V5 = (("transformers", "5.0"),)
FUSED = (("transformers", "4.54"), ("torch", "2.8"))
HALF = ("bf16", "fp16")
FOREACH = (
    "adamw",
    "adam",
    "sgd",
    "sgd-momentum",
    "adagrad",
    "adadelta",
    "adamax",
    "nadam",
    "radam",
    "rmsprop",
    "asgd",
    "rprop",
)
ZERO = tuple(STAGES)
FSDP = ("fsdp1", "fsdp1-noshard", "fsdp2", "hsdp")
SHARDING = (*ZERO, "fsdp1", "fsdp2", "hsdp", "megatron-distopt", "megatron-fsdp")
MEGATRON_STRATEGIES = ("megatron-ddp", "megatron-distopt", "megatron-fsdp")


def framework(*names: str) -> Condition:
    """Holds where the plan's framework is one of these."""
    return ("stack.framework", names)
