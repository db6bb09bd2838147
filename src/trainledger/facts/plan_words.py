"""Keys of other formats that are tried in a plan, and the plan's key that each means."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Tried:
    """A key of a plan (dotted), and the words that trainers have for it."""

    key: str
    words: tuple[str, ...]
    source: Source


_TRAINERS = Source(
    "Arguments of trainers",
    "transformers/training_args.py, peft/tuners/lora/config.py, axolotl/utils/schemas, megatron/training/arguments.py, "
    "torchtitan/config/job_config.py",
    "5.24.0; 0.21.2; 0.18.0; 2026-08; 0.2.2",
)


def _tried(key: str, words: str) -> Tried:
    return Tried(key, tuple(words.split()), _TRAINERS)


TRIED: tuple[Tried, ...] = (
    _tried("model", "model_name model_name_or_path base_model model_id checkpoint"),
    _tried("model.max_position_embeddings", "max_position_embeddings"),
    _tried("adapter.r", "rank lora_r lora_rank lora_dim"),
    _tried("adapter.options.lora_alpha", "alpha lora_alpha"),
    _tried("adapter.dropout", "lora_dropout"),
    _tried("adapter.targets", "target_modules lora_target lora_target_modules lora_target_linear target"),
    _tried("adapter.train_extra", "modules_to_save lora_modules_to_save"),
    _tried("adapter.kind", "peft peft_type method type lora"),
    _tried(
        "batch.micro_batch", "batch_size micro_batch_size per_device_train_batch_size local_batch_size mbs microbatch"
    ),
    _tried(
        "batch.sequence",
        "seq_len seq_length sequence_len sequence_length max_seq_len max_seq_length max_length cutoff_len",
    ),
    _tried("batch.accumulation", "gradient_accumulation_steps gradient_accumulation grad_accum accumulation_steps"),
    _tried("batch.global", "global_batch_size global_batch train_batch_size gbs"),
    _tried("optimizer.name", "optim optimizer_type type"),
    _tried("optimizer.options.lr", "lr learning_rate"),
    _tried("optimizer.grad_clip", "max_grad_norm clip_grad max_norm gradient_clipping"),
    _tried("parallel.world", "gpus num_gpus ngpus world_size num_processes nproc_per_node ranks devices"),
    _tried("parallel.dp", "dp_size data_parallel_size data_parallel"),
    _tried(
        "parallel.tp", "tp_size tensor_parallel tensor_parallel_size tensor_model_parallel_size tensor_parallel_degree"
    ),
    _tried("parallel.pp", "pp_size pipeline_parallel pipeline_model_parallel_size pipeline_parallel_degree"),
    _tried("parallel.cp", "cp_size context_parallel context_parallel_size context_parallel_degree"),
    _tried("parallel.ep", "ep_size expert_parallel expert_model_parallel_size expert_parallel_degree"),
    _tried("parallel.sp", "sequence_parallel"),
    _tried("parallel.strategy", "fsdp deepspeed zero zero_stage sharding sharding_strategy"),
    _tried("precision.weights", "dtype param_dtype params torch_dtype"),
    _tried("precision.compute", "bf16 fp16 mixed_precision"),
    _tried("quantization.kind", "load_in_4bit load_in_8bit bits quant_method bnb_4bit_quant_type"),
    _tried("stack.versions.torch", "torch torch_version pytorch"),
    _tried("stack.recompute", "gradient_checkpointing activation_checkpointing recompute checkpointing"),
    _tried("stack.attention", "flash flash_attention flash_attn attn_implementation use_flash_attn"),
    _tried("stack.kernels", "liger use_liger use_liger_kernel"),
    _tried("stack.compile", "torch_compile"),
    _tried("offload.optimizer", "cpu_offload offload_optimizer optimizer_cpu_offload"),
    _tried("offload.params", "offload_param offload_params param"),
    _tried("device", "gpu gpu_type hardware accelerator"),
)
