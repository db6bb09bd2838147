"""How outside formats say keys of the plan that advice changes: the key to write, and its value."""

from __future__ import annotations

from trainledger.facts.format_word_row import (
    ARGUMENTS,
    AXOLOTL,
    AXOLOTL_KEYS,
    BY_OPERATION,
    CORE,
    FACTORY,
    FACTORY_KEYS,
    FULL,
    FULL_PLAIN,
    FULL_UNIFORM,
    LITGPT,
    LITGPT_KEYS,
    MEGATRON,
    MEGATRON_KEYS,
    RECOMPUTE,
    SECOND,
    SWIFT,
    SWIFT_KEYS,
    TITAN,
    TITAN_KEYS,
    TRAINER,
    TUNE,
    TUNE_KEYS,
    TUNERS,
    ZERO,
    ZERO_KEYS,
    Word,
    same,
    states,
)
from trainledger.facts.format_words_ranks import SHARDING

BATCHES: tuple[Word, ...] = (
    *same(
        TUNERS,
        ARGUMENTS,
        ("batch.micro_batch", "per_device_train_batch_size"),
        ("batch.accumulation", "gradient_accumulation_steps"),
    ),
    *same(
        AXOLOTL,
        AXOLOTL_KEYS,
        ("batch.micro_batch", "micro_batch_size"),
        ("batch.accumulation", "gradient_accumulation_steps"),
        ("batch.sequence", "sequence_len"),
    ),
    *same(TRAINER, ARGUMENTS, ("batch.sequence", "max_length")),
    *same(FACTORY, FACTORY_KEYS, ("batch.sequence", "cutoff_len"), ("adapter.r", "lora_rank")),
    *same(SWIFT, SWIFT_KEYS, ("batch.sequence", "max_length"), ("adapter.r", "lora_rank")),
    *same(
        TUNE,
        TUNE_KEYS,
        ("batch.micro_batch", "batch_size"),
        ("batch.accumulation", "gradient_accumulation_steps"),
        ("batch.sequence", "tokenizer.max_seq_len"),
        ("adapter.r", "model.lora_rank"),
    ),
    *same(
        TITAN,
        TITAN_KEYS,
        ("batch.micro_batch", "training.local_batch_size"),
        ("batch.sequence", "training.seq_len"),
        ("parallel.tp", "parallelism.tensor_parallel_degree"),
        ("parallel.cp", "parallelism.context_parallel_degree"),
        ("parallel.pp", "parallelism.pipeline_parallel_degree"),
        ("parallel.ep", "parallelism.expert_parallel_degree"),
        ("parallel.dp", "parallelism.data_parallel_shard_degree"),
    ),
    *same(
        LITGPT,
        LITGPT_KEYS,
        ("batch.micro_batch", "train.micro_batch_size"),
        ("batch.sequence", "train.max_seq_length"),
        ("adapter.r", "lora_r"),
    ),
    *same(
        MEGATRON,
        MEGATRON_KEYS,
        ("batch.micro_batch", "micro-batch-size"),
        ("batch.sequence", "seq-length"),
        ("parallel.tp", "tensor-model-parallel-size"),
        ("parallel.cp", "context-parallel-size"),
        ("parallel.pp", "pipeline-model-parallel-size"),
        ("parallel.ep", "expert-model-parallel-size"),
    ),
    *same(AXOLOTL, AXOLOTL_KEYS, ("adapter.r", "lora_r")),
    *same(
        ZERO,
        ZERO_KEYS,
        ("batch.micro_batch", "train_micro_batch_size_per_gpu"),
        ("batch.accumulation", "gradient_accumulation_steps"),
    ),
)

RECOMPUTES: tuple[Word, ...] = (
    Word(
        (*TUNERS, *AXOLOTL),
        RECOMPUTE,
        (("gradient_checkpointing", "true"), ("gradient_checkpointing_kwargs", "{use_reentrant: false}")),
        ARGUMENTS,
        FULL_PLAIN,
    ),
    Word(TUNE, RECOMPUTE, (("enable_activation_checkpointing", "true"),), TUNE_KEYS, FULL),
    Word(TITAN, RECOMPUTE, (("activation_checkpoint.mode", '"full"'),), TITAN_KEYS, FULL),
    Word(
        TITAN,
        RECOMPUTE,
        (("activation_checkpoint.mode", '"selective"'), ("activation_checkpoint.selective_ac_option", '"op"')),
        TITAN_KEYS,
        BY_OPERATION,
    ),
    Word(
        TITAN,
        RECOMPUTE,
        (("activation_checkpoint.mode", '"selective"'), ("activation_checkpoint.selective_ac_option", '"2"')),
        TITAN_KEYS,
        SECOND,
    ),
    Word(
        MEGATRON,
        RECOMPUTE,
        (("recompute-granularity", "full"), ("recompute-method", "uniform"), ("recompute-num-layers", "1")),
        MEGATRON_KEYS,
        FULL_UNIFORM,
    ),
    Word(
        MEGATRON,
        RECOMPUTE,
        (("recompute-granularity", "selective"), ("recompute-modules", "core_attn")),
        MEGATRON_KEYS,
        CORE,
    ),
)

KERNELS: tuple[Word, ...] = (
    Word(TRAINER, "stack.attention", (("attn_implementation", "flash_attention_2"),), ARGUMENTS, "flash"),
    Word(TRAINER, "stack.attention", (("attn_implementation", "sdpa"),), ARGUMENTS, "sdpa"),
    Word(AXOLOTL, "stack.attention", (("flash_attention", "true"),), AXOLOTL_KEYS, "flash"),
    Word(AXOLOTL, "stack.attention", (("sdp_attention", "true"),), AXOLOTL_KEYS, "sdpa"),
    Word(FACTORY, "stack.attention", (("flash_attn", "fa2"),), FACTORY_KEYS, "flash"),
    Word(FACTORY, "stack.attention", (("flash_attn", "sdpa"),), FACTORY_KEYS, "sdpa"),
    Word(SWIFT, "stack.attention", (("attn_impl", "flash_attn"),), SWIFT_KEYS, "flash"),
    Word(TRAINER, "stack.loss", (("use_liger_kernel", "true"),), ARGUMENTS, "fused-linear"),
    Word(SWIFT, "stack.loss", (("use_liger_kernel", "true"),), SWIFT_KEYS, "fused-linear"),
    Word(FACTORY, "stack.loss", (("enable_liger_kernel", "true"),), FACTORY_KEYS, "fused-linear"),
    Word(
        AXOLOTL,
        "stack.loss",
        (("plugins", "[axolotl.integrations.liger.LigerPlugin]"), ("liger_fused_linear_cross_entropy", "true")),
        AXOLOTL_KEYS,
        "fused-linear",
    ),
    Word(TUNERS, "stack.kernels", (), ARGUMENTS),
    Word(
        AXOLOTL,
        "stack.kernels",
        (("liger_rope", "true"), ("liger_rms_norm", "true"), ("liger_glu_activation", "true")),
        AXOLOTL_KEYS,
        ["liger"],
    ),
    Word(
        TUNE,
        "stack.loss",
        (("loss._component_", "torchtune.modules.loss.CEWithChunkedOutputLoss"),),
        TUNE_KEYS,
        "chunked",
    ),
)

OPTIMIZERS: tuple[Word, ...] = (
    *states(TUNERS, ARGUMENTS, "optim"),
    *states(AXOLOTL, AXOLOTL_KEYS, "optimizer"),
    Word(TUNERS, "optimizer.implementation", (("optim", "adamw_torch_fused"),), ARGUMENTS, "fused"),
    Word(AXOLOTL, "optimizer.implementation", (("optimizer", "adamw_torch_fused"),), AXOLOTL_KEYS, "fused"),
    Word(TUNE, "optimizer.implementation", (("optimizer.fused", "true"),), TUNE_KEYS, "fused"),
    Word(TUNE, "optimizer.in_backward", (("optimizer_in_bwd", "true"),), TUNE_KEYS, True),
    Word(
        TUNE,
        "optimizer.name",
        (("optimizer._component_", "bitsandbytes.optim.PagedAdamW8bit"),),
        TUNE_KEYS,
        "paged-adamw-8bit",
    ),
    Word(TUNE, "optimizer.name", (("optimizer._component_", "bitsandbytes.optim.AdamW8bit"),), TUNE_KEYS, "adamw-8bit"),
    Word(TITAN, "optimizer.implementation", (("optimizer.implementation", '"fused"'),), TITAN_KEYS, "fused"),
    Word(
        FACTORY,
        "quantization",
        (("quantization_bit", "4"), ("quantization_method", "bnb"), ("double_quantization", "true")),
        FACTORY_KEYS,
    ),
    Word(AXOLOTL, "quantization", (("adapter", "qlora"), ("load_in_4bit", "true")), AXOLOTL_KEYS),
    Word(
        TRAINER,
        "quantization",
        (("load_in_4bit", "true"), ("bnb_4bit_quant_type", "nf4"), ("use_bnb_nested_quant", "true")),
        ARGUMENTS,
    ),
    Word(SWIFT, "quantization", (("quant_method", "bnb"), ("quant_bits", "4")), SWIFT_KEYS),
    Word(FACTORY, "adapter", (("finetuning_type", "lora"), ("lora_rank", "16"), ("lora_target", "all")), FACTORY_KEYS),
    Word(AXOLOTL, "adapter", (("adapter", "lora"), ("lora_r", "16"), ("lora_target_linear", "true")), AXOLOTL_KEYS),
    Word(
        TRAINER, "adapter", (("use_peft", "true"), ("lora_r", "16"), ("lora_target_modules", "all-linear")), ARGUMENTS
    ),
    Word(SWIFT, "adapter", (("train_type", "lora"), ("lora_rank", "16"), ("target_modules", "all-linear")), SWIFT_KEYS),
    Word(MEGATRON, "parallel.sp", (("sequence-parallel", ""),), MEGATRON_KEYS, True),
    Word(MEGATRON, "parallel.strategy", (("use-distributed-optimizer", ""),), MEGATRON_KEYS, "megatron-distopt"),
)

WORDS: tuple[Word, ...] = (*BATCHES, *RECOMPUTES, *KERNELS, *OPTIMIZERS, *SHARDING)
# Settings of the allocator are variables of the environment, whatever starts the run.
ALLOCATOR_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
ALLOCATOR_PATH = "stack.allocator."
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".cmd")
