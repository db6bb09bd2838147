"""torchtune's configurations and `tune run` lines: their keys, the components they name, and what recipes fill in.

Read in source: recipes/*.py, recipes/configs, torchtune/models/*/_model_builders.py, torchtune/training (0.1.0 to
0.6.1, and the main branch of 2026-04-23).
"""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, straight, uncounted
from trainledger.facts.import_words import WordRow, words
from trainledger.facts.option_row import Direction

HIGH, LOW, EITHER = Direction.HIGH, Direction.LOW, Direction.EITHER


def _read(where: str, read: str = "0.1.0 to 0.6.1, 2026-04") -> Source:
    return Source("torchtune", where, read)


RECIPE = _read("recipes/*.py, what a recipe reads of its configuration")
CONFIGS = _read("recipes/configs")
SHARDING = _read("training/_distributed.py, shard_model; recipes/full_finetune_distributed.py, setup")
BUILDERS_SOURCE = _read("models/*/_model_builders.py")
LOSS = _read("modules/loss")
ASYNC, ADAPTER_ONLY = "enable_async_checkpointing", "save_adapter_weights_only"

KEYS: tuple[KeyRow, ...] = (
    *read(
        CONFIGS,
        "model model._component_ model.* policy_model policy_model._component_ policy_model.* dtype loss "
        "loss._component_ optimizer optimizer._component_ optimizer.fused optimizer.foreach optimizer.momentum compile "
        "enable_activation_checkpointing enable_activation_offloading ac_mode ac_option fsdp_cpu_offload "
        "fsdp_sharding_strategy fsdp_reshard_after_forward tensor_parallel_dim tensor_parallel_plan "
        "tensor_parallel_plan._component_ context_parallel_dim data_parallel_shard_dim data_parallel_replicate_dim "
        "enable_fp8_training fp8_recipe_name tokenizer.max_seq_len dataset.max_seq_len max_seq_len dataset.packed "
        f"device {ASYNC} {ADAPTER_ONLY}".split(),
    ),
    *straight(
        RECIPE,
        (
            ("batch_size", "batch.micro_batch"),
            ("gradient_accumulation_steps", "batch.accumulation"),
            ("optimizer_in_bwd", "optimizer.in_backward"),
            ("clip_grad_norm", "optimizer.grad_clip"),
        ),
    ),
    *nothing(
        RECIPE,
        "output_dir seed shuffle epochs max_steps_per_epoch log_level log_every_n_steps log_peak_memory_stats "
        "metric_logger metric_logger.* checkpointer checkpointer.* ref_checkpointer ref_checkpointer.* "
        "teacher_checkpointer teacher_checkpointer.* resume_from_checkpoint lr_scheduler lr_scheduler.* "
        "tokenizer tokenizer.* dataset dataset.* datasets dataset_val dataset_val.* dataloader dataloader.* "
        "collate_fn optimizer.* loss.* profiler profiler.* save_every_n_steps save_every_n_epochs name "
        "cudnn_deterministic_mode low_cpu_ram use_distributed_state_dict context_parallel_rotate_method "
        "memory_efficient_fsdp_wrap prompt kd_ratio base_model_path run_name project "
        "ref_policy_checkpointer ref_policy_checkpointer.* value_checkpointer value_checkpointer.* reward_checkpointer "
        "reward_checkpointer.* reward_functions top_k temperature ppo_epochs ppo_batch_size num_steps "
        "min_response_length batch_size_val penalise_no_eos reward_penalty stop_token_ids whiten_rewards gamma "
        "lmbda kl_coeff".split(),
    ),
    *uncounted(
        RECIPE,
        (
            ("custom_sharded_layers", HIGH),
            ("run_val_every_n_steps", LOW),
            ("resize_token_embeddings", EITHER),
            ("activation_offloading_use_streams", EITHER),
            ("tensor_parallel_plan.*", EITHER),
            ("quantizer._component_", LOW),
            ("quantizer.*", EITHER),
            ("quantizer", LOW),
            ("fake_quant_after_n_steps", LOW),
            ("teacher_model", LOW),
            ("teacher_model.*", LOW),
            ("kd_loss", LOW),
            ("kd_loss.*", LOW),
            ("reward_and_value_model", LOW),
            ("reward_and_value_model.*", LOW),
            ("forward_batch_size", EITHER),
            ("grpo_samples", LOW),
            ("max_generated_tokens", LOW),
            ("enable_kv_cache", LOW),
        ),
    ),
)

_QWEN = "base instruct".split()
BUILDERS: dict[str, WordRow] = words(
    BUILDERS_SOURCE,
    (
        *((f"llama2_{size}", f"llama-2-{size}") for size in ("7b", "13b", "70b")),
        ("code_llama2_7b", "codellama-7b"),
        ("code_llama2_13b", "codellama-13b"),
        *((f"llama3_{size}", f"llama-3-{size}") for size in ("8b", "70b")),
        *((f"llama3_1_{size}", f"llama-3.1-{size}") for size in ("8b", "70b", "405b")),
        *((f"llama3_2_{size}", f"llama-3.2-{size}") for size in ("1b", "3b")),
        ("llama3_3_70b", "llama-3.3-70b"),
        ("mistral_7b", "mistral-7b-v0.1"),
        *((f"gemma_{size}", f"gemma-{size}") for size in ("2b", "7b")),
        *((f"gemma2_{size}", f"gemma-2-{size}") for size in ("2b", "9b", "27b")),
        ("phi3_mini", "phi-3-mini"),
        ("phi4_14b", "phi-4"),
        ("qwen2_0_5b", "qwen2-0.5b"),
        ("qwen2_1_5b", "qwen2-1.5b"),
        ("qwen2_7b", "qwen2-7b"),
        ("qwen2_5_0_5b", "qwen2.5-0.5b"),
        ("qwen2_5_3b", "qwen2.5-3b"),
        *(
            (f"qwen2_5_{size}_{kind}", f"qwen2.5-{size.replace('_', '.')}")
            for size in ("1_5b", "7b", "14b", "32b", "72b")
            for kind in _QWEN
        ),
        *(
            (f"qwen3_{size}_{kind}", f"qwen3-{size.replace('_', '.')}")
            for size in ("0_6b", "1_7b", "4b", "8b", "14b")
            for kind in _QWEN
        ),
        ("qwen3_32b", "qwen3-32b"),
    ),
)
# Builders that take a model's shape as arguments, and its family.
SHAPED: dict[str, WordRow] = words(
    _read("models/*/_component_builders.py"),
    (
        ("llama2", "llama"),
        ("llama3", "llama"),
        ("llama3_1", "llama"),
        ("llama3_2", "llama"),
        ("mistral", "mistral"),
        ("qwen2", "qwen2"),
        ("qwen3", "qwen3"),
    ),
)
ARGUMENTS: dict[str, WordRow] = words(
    _read("models/*/_component_builders.py"),
    (
        ("vocab_size", "vocab_size"),
        ("num_layers", "num_hidden_layers"),
        ("num_heads", "num_attention_heads"),
        ("num_kv_heads", "num_key_value_heads"),
        ("embed_dim", "hidden_size"),
        ("intermediate_dim", "intermediate_size"),
        ("max_seq_len", "max_position_embeddings"),
        ("head_dim", "head_dim"),
        ("tie_word_embeddings", "tie_word_embeddings"),
    ),
)
TIED: dict[str, WordRow] = words(
    _read("models/llama3_2/_component_builders.py: the head is the embedding's weight"), (("llama3_2", "llama"),)
)
NEEDED = ("vocab_size", "num_layers", "num_heads", "embed_dim", "intermediate_dim")
LORA_KEYS = (
    "_component_ lora_attn_modules apply_lora_to_mlp apply_lora_to_output lora_rank lora_alpha lora_dropout use_dora "
    "quantize_base"
).split()
TARGETS: dict[str, WordRow] = words(
    _read("modules/peft, LORA_ATTN_MODULES; models/convert_weights.py"),
    (("q_proj", "q_proj"), ("k_proj", "k_proj"), ("v_proj", "v_proj"), ("output_proj", "o_proj")),
)
MLP_TARGETS = ("gate_proj", "up_proj", "down_proj")
OUTPUT_TARGET = "lm_head"

_TORCH = Source("PyTorch optimizers, as torchtune names them", "torch/optim", "2.13")
_BNB = Source("bitsandbytes optimizers, as torchtune names them", "bitsandbytes/optim", "0.42 to 0.48")
_AO = Source("torchao optimizers, as torchtune names them", "torchao/optim", "0.5 to 0.18")
OPTIMIZERS: dict[str, WordRow] = {
    **words(
        _TORCH,
        (
            ("torch.optim.AdamW", "adamw"),
            ("torch.optim.Adam", "adam"),
            ("torch.optim.SGD", "sgd"),
            ("torch.optim.Adagrad", "adagrad"),
            ("torch.optim.RMSprop", "rmsprop"),
            ("torch.optim.NAdam", "nadam"),
            ("torch.optim.RAdam", "radam"),
        ),
    ),
    **words(
        _BNB,
        (
            ("bitsandbytes.optim.PagedAdamW8bit", "paged-adamw-8bit"),
            ("bitsandbytes.optim.PagedAdamW", "paged-adamw-32bit"),
            ("bitsandbytes.optim.PagedAdamW32bit", "paged-adamw-32bit"),
            ("bitsandbytes.optim.PagedAdam", "paged-adam-32bit"),
            ("bitsandbytes.optim.PagedAdam8bit", "paged-adam-8bit"),
            ("bitsandbytes.optim.AdamW8bit", "adamw-8bit"),
            ("bitsandbytes.optim.Adam8bit", "adam-8bit"),
            ("bitsandbytes.optim.PagedLion8bit", "paged-lion-8bit"),
            ("bitsandbytes.optim.Lion8bit", "lion-8bit"),
        ),
    ),
    **words(
        _AO,
        (
            *((f"torchao.{place}.AdamW8bit", "adamw-torchao-8bit") for place in ("optim", "prototype.low_bit_optim")),
            *((f"torchao.{place}.AdamW4bit", "adamw-4bit") for place in ("optim", "prototype.low_bit_optim")),
            *((f"torchao.{place}.AdamWFp8", "adamw-fp8") for place in ("optim", "prototype.low_bit_optim")),
        ),
    ),
}
LOSSES: dict[str, WordRow] = words(
    LOSS,
    (
        ("torch.nn.CrossEntropyLoss", "full-fp32"),
        ("torchtune.modules.loss.CEWithChunkedOutputLoss", "chunked"),
        ("torchtune.modules.loss.LinearCrossEntropyLoss", "chunked"),
    ),
)
TASKS: dict[str, WordRow] = words(
    LOSS,
    (
        ("torchtune.rlhf.loss.DPOLoss", "dpo"),
        ("torchtune.modules.loss.DPOLoss", "dpo"),
        ("torchtune.rlhf.loss.RSOLoss", "dpo"),
        ("torchtune.rlhf.loss.SimPOLoss", "simpo"),
        ("torchtune.rlhf.loss.PPOLoss", "ppo"),
        ("torchtune.dev.grpo.loss.GRPOSimpleLoss", "grpo"),
        ("torchtune.dev.grpo.loss.GRPOLoss", "grpo"),
        ("torchtune.dev.rl.linear_grpo_loss.LinearGRPOLoss", "grpo"),
    ),
)
DTYPES: dict[str, WordRow] = words(
    _read("training/precision.py"), (("bf16", "bf16"), ("fp32", "fp32"), ("fp16", "fp16"))
)
ONE, MANY = "one", "many"
RECIPES: dict[str, WordRow] = {
    **words(
        RECIPE,
        (
            *((f"{name}_single_device", ONE) for name in ("full_finetune", "lora_finetune", "lora_dpo", "qat")),
            *((f"{name}_single_device", ONE) for name in ("knowledge_distillation", "ppo_full_finetune")),
            *((f"{name}_distributed", MANY) for name in ("full_finetune", "lora_finetune", "lora_dpo", "full_dpo")),
            *((f"{name}_distributed", MANY) for name in ("qat", "qat_lora_finetune", "knowledge_distillation")),
            ("lora_finetune_fsdp2", MANY),
            ("full_finetune_fsdp2", MANY),
            ("dev/grpo_full_finetune_distributed", MANY),
            ("dev/early_exit_finetune_distributed", MANY),
        ),
    )
}
SPREAD = (
    "fsdp_cpu_offload custom_sharded_layers tensor_parallel_dim tensor_parallel_plan context_parallel_dim "
    "fsdp_reshard_after_forward fsdp_sharding_strategy data_parallel_shard_dim data_parallel_replicate_dim"
).split()  # keys that distributed recipes alone read

# Keys of distributed recipes and the plan's degrees, in both directions.
DEGREES = (("tensor_parallel_dim", "tp"), ("context_parallel_dim", "cp"))
LENGTHS = ("tokenizer.max_seq_len", "dataset.max_seq_len", "max_seq_len")

NEWEST = FilledRow("stack.versions.torchtune", "0.6.1", "the newest release that was read", RECIPE)
FILLED: tuple[FilledRow, ...] = (
    FilledRow("task", "sft", "torchtune's recipes fine-tune", RECIPE),
    FilledRow("batch.accumulation", 1, "torchtune: gradient_accumulation_steps", RECIPE),
    FilledRow("stack.recompute", "none", "torchtune: enable_activation_checkpointing False", RECIPE),
    FilledRow("stack.compile", False, "torchtune: compile False", RECIPE),
    FilledRow("stack.attention", "sdpa", "torchtune without packed samples", _read("modules/attention_utils.py")),
    FilledRow("optimizer.in_backward", False, "torchtune: optimizer_in_bwd False", RECIPE),
)
SPREAD_FILLED: tuple[FilledRow, ...] = (
    FilledRow("parallel.strategy", "fsdp1", "torchtune's distributed recipes", SHARDING, until="0.3.0"),
    FilledRow("parallel.strategy", "fsdp2", "torchtune's distributed recipes", SHARDING, since="0.3.0"),
    FilledRow("parallel.reshard_after_forward", True, "torchtune: fsdp_reshard_after_forward True", SHARDING),
)
ALONE_FILLED: tuple[FilledRow, ...] = (
    FilledRow("parallel.strategy", "none", "no key and no command says that there are several devices", RECIPE),
)
_LORA = _read("models/*/_model_builders.py, arguments of LoRA's builders")
LORA_FILLED: tuple[FilledRow, ...] = (
    FilledRow("adapter.r", 8, "torchtune: lora_rank 8", _LORA),
    FilledRow("adapter.dropout", 0.0, "torchtune: lora_dropout 0.0", _LORA),
)
FOREACH = FilledRow("optimizer.implementation", "foreach", "PyTorch's default on a device", _TORCH)
WORLD = Source("torchrun", "torch/distributed/run.py, --nproc-per-node 1", "2.13")
