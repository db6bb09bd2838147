"""LLaMA-Factory's YAML and command lines: their keys and what they mean for memory, and what is done where one is left
out. Keys of TrainingArguments are the Trainer's own rows."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, uncounted
from trainledger.facts.option_row import Direction

LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER
HPARAMS = Source("LLaMA-Factory's arguments", "llamafactory/hparams/*.py", "0.9.3, 0.9.6")
CHECKPOINTS = Source(
    "LLaMA-Factory, recompute", "llamafactory/model/model_utils/checkpointing.py, prepare_model_for_training", "0.9.6"
)
UPCASTS = Source("LLaMA-Factory, what is trained in float32", "llamafactory/model/adapter.py, init_adapter", "0.9.6")
SEQ2SEQ = Source("Transformers Seq2SeqTrainingArguments", "transformers/training_args_seq2seq.py", "5.24.0")

_READ = """
model_name_or_path stage finetuning_type lora_rank lora_dropout lora_target additional_target use_dora
quantization_bit quantization_type quantization_method double_quantization cutoff_len packing neat_packing flash_attn
enable_liger_kernel disable_gradient_checkpointing use_reentrant_gc use_unsloth_gc upcast_layernorm pure_bf16
use_galore galore_target galore_rank galore_update_interval galore_scale galore_proj_type galore_layerwise
use_apollo apollo_target apollo_rank apollo_update_interval apollo_scale apollo_proj apollo_proj_type
apollo_scale_type apollo_layerwise use_badam use_muon freeze_trainable_layers freeze_trainable_modules
freeze_extra_modules use_llama_pro pref_loss adapter_name_or_path use_mca use_megatron_bridge oft_rank oft_block_size
oft_target module_dropout ref_model
"""
_NOTHING = """
adapter_folder cache_dir use_fast_tokenizer split_special_tokens add_special_tokens new_special_tokens_config
init_special_tokens model_revision low_cpu_mem_usage trust_remote_code offload_folder infer_backend infer_dtype
use_kv_cache hf_hub_token ms_hub_token om_hub_token print_param_status quantization_device_map lora_alpha
loraplus_lr_ratio loraplus_lr_embedding use_rslora pissa_init pissa_iter pissa_convert create_new_adapter pref_beta
pref_ftx pref_bco_weight dpo_label_smoothing kto_chosen_weight kto_rejected_weight simpo_gamma ld_alpha
ppo_buffer_size ppo_epochs ppo_score_norm ppo_target ppo_whiten_rewards reward_model_type apollo_scale_front
badam_verbose use_swanlab swanlab_* compute_accuracy disable_shuffling early_stopping_steps plot_loss
include_effective_tokens_per_second freeze_vision_tower freeze_multi_modal_projector template dataset eval_dataset
dataset_dir media_dir train_on_prompt mask_history streaming buffer_size mix_strategy interleave_probs
overwrite_cache preprocessing_batch_size preprocessing_num_workers max_samples eval_num_beams
ignore_pad_token_for_loss val_size eval_on_each_dataset tool_format default_system enable_thinking
preserve_thinking tokenized_path data_shared_file_system do_sample temperature top_p top_k num_beams max_length
max_new_tokens repetition_penalty length_penalty skip_special_tokens ray_run_name ray_storage_path
ray_storage_filesystem ray_num_workers ray_init_kwargs ray_init_kwargs.* resources_per_worker
resources_per_worker.* placement_strategy master_addr master_port export_* vllm_* sglang_* image_* video_*
audio_* crop_to_patches use_audio_in_video enable_torch_profiler profiler_* profile_modules moe_aux_loss_coef
sortish_sampler generation_max_length generation_num_beams generation_config lang task task_dir save_dir n_shot
dataset_num_proc cutoff_side eaft_alpha asft_alpha use_v1_kernels
"""
_UNCOUNTED: tuple[tuple[str, Direction], ...] = (
    *((name, HIGH) for name in "use_unsloth freeze_language_model".split()),
    *((name, LOW) for name in (
        "upcast_lmhead_output resize_vocab add_tokens ref_model_adapters ref_model_quantization_bit reward_model "
        "reward_model_adapters reward_model_quantization_bit predict_with_generate use_dft_loss use_eaft_loss "
        "use_asft_loss"
    ).split()),
    *((name, EITHER) for name in (
        "rope_scaling shift_attn mixture_of_depths train_from_scratch use_kt kt_* badam_mode badam_start_block "
        "badam_switch_mode badam_switch_interval badam_update_ratio badam_mask_mode use_adam_mini fp8 fp8_* "
        "use_hyper_parallel hyper_parallel_* megatron_bridge_args use_ray device_map chunk_size"
    ).split()),
)  # fmt: skip

LLAMAFACTORY_KEYS: tuple[KeyRow, ...] = (
    *read(HPARAMS, _READ.split()),
    *nothing(HPARAMS, _NOTHING.split()),
    *uncounted(HPARAMS, _UNCOUNTED),
    *nothing(SEQ2SEQ, ("data_seed",)),
)

# What LLaMA-Factory hands the Trainer where a key is left out; `path` is the Trainer's argument.
LLAMAFACTORY_FILLED: tuple[FilledRow, ...] = (
    FilledRow("cutoff_len", 2048, "cutoff_len 2048", HPARAMS, since="0.9.2"),
    FilledRow("cutoff_len", 1024, "cutoff_len 1024", HPARAMS, until="0.9.2"),
    FilledRow("lora_r", 8, "lora_rank 8", HPARAMS),
    FilledRow("lora_dropout", 0.0, "lora_dropout 0", HPARAMS),
    FilledRow("lora_target_modules", "all-linear", "lora_target all", HPARAMS),
    FilledRow("gradient_checkpointing", True, "recompute is on unless it is disabled", CHECKPOINTS),
    FilledRow("gradient_checkpointing_kwargs", {"use_reentrant": True}, "use_reentrant_gc", CHECKPOINTS),
    FilledRow("bnb_4bit_quant_type", "nf4", "quantization_type nf4", HPARAMS),
    FilledRow("bnb_4bit_use_double_quant", True, "double_quantization", HPARAMS),
)


@dataclass(frozen=True, slots=True)
class Padding:
    """Tokens that a packed sample has beyond `cutoff_len`, and to whose multiple the collators pad (`stages`)."""

    beyond: int
    multiple: int
    stages: tuple[str, ...]
    source: Source


PADDING = Padding(
    1,
    8,
    ("sft", "rm", "dpo", "kto"),
    Source(
        "LLaMA-Factory, packing and collators",
        "llamafactory/data/processor/supervised.py; llamafactory/train/*/workflow.py",
        "0.9.3, 0.9.6",
    ),
)
NO_SEARCH = FilledRow(
    "ddp_find_unused_parameters",
    False,
    "DDP does not look for unused weights with LoRA",
    Source("LLaMA-Factory, its parser", "llamafactory/hparams/parser.py, get_train_args", "0.9.3, 0.9.6"),
)
GALORE = FilledRow("optim_args", "rank=16", "galore_rank 16, apollo_rank 16", HPARAMS)
REENTRANT_OFF = FilledRow(
    "gradient_checkpointing_kwargs", {"use_reentrant": False}, "FSDP2 takes the variant without reentrance", CHECKPOINTS
)
FLOAT32 = FilledRow("dtype", "float32", "what is trained is kept in float32 unless pure_bf16", UPCASTS)
# The Trainer's arguments and LLaMA-Factory's own keys for them, in both directions.
ADAPTER_SAME: tuple[tuple[str, str], ...] = (
    ("lora_r", "lora_rank"), ("lora_dropout", "lora_dropout"), ("use_dora", "use_dora"),
)  # fmt: skip
OFT_SIZES = (("adapter.r", "oft_rank"), ("adapter.options.oft_block_size", "oft_block_size"))
BITS_SAME = (("bnb_4bit_quant_type", "quantization_type"), ("bnb_4bit_use_double_quant", "double_quantization"))
LLAMAFACTORY_NEWEST = FilledRow("stack.versions.llamafactory", "0.9.6", "the newest release that was read", HPARAMS)
LAST_LAYERS = FilledRow("freeze_trainable_layers", 2, "freeze_trainable_layers 2", HPARAMS)
FLASH = {"fa2": "flash_attention_2", "fa3": "flash_attention_3", "sdpa": "sdpa", "disabled": "eager", "auto": ""}
STAGES = {"pt": "pretrain", "sft": "sft", "rm": "reward", "ppo": "ppo", "dpo": "dpo", "kto": "kto"}
LOSSES = {"orpo": "orpo", "simpo": "simpo"}  # pref_loss under stage dpo
METHODS = ("lora", "full", "freeze", "oft")
FSDP2 = 2  # fsdp_version of the variant that shards each parameter
BITS = (4, 8)  # that bitsandbytes stores
