"""Keys of Transformers' TrainingArguments and of the arguments that its scripts add, and what each means for memory."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import KeyRow, nothing, read, uncounted
from trainledger.facts.option_row import Direction

TRAINER = Source("Transformers TrainingArguments", "transformers/training_args.py", "4.39 to 5.24.0")
LAUNCH = Source("Transformers and TRL example scripts", "examples/pytorch/language-modeling; trl/scripts", "5.24.0")
PEFT = Source("PEFT LoraConfig", "peft/tuners/lora/config.py", "0.21.2")
BNB = Source("Transformers BitsAndBytesConfig", "transformers/utils/quantization_config.py", "5.24.0")

LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER
LENGTHS = (
    "max_length", "max_seq_length", "max_seq_len", "model_max_length", "block_size", "cutoff_len", "seq_length",
)  # fmt: skip
# Arguments and the plan's keys that each says, in both directions: whole numbers of 1 or more; options of the plan's
# stack under the argument's own name, by kind; settings of DDP, without their `ddp_`.
COUNTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("batch.micro_batch", ("per_device_train_batch_size", "per_gpu_train_batch_size")),
    ("batch.accumulation", ("gradient_accumulation_steps",)),
    ("batch.sequence", LENGTHS),
    ("stack.options.torch_empty_cache_steps", ("torch_empty_cache_steps",)),
    ("stack.options.steps_per_generation", ("steps_per_generation",)),
    ("stack.options.precompute_ref_batch_size", ("precompute_ref_batch_size",)),
)
FLAGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    *(
        (f"stack.options.{name}", (name,))
        for name in "packing padding_free precompute_ref_log_probs sync_ref_model".split()
    ),
    ("stack.options.use_weighting", ("use_weighting",)),
    ("stack.options.use_logits_to_keep", ("use_logits_to_keep", "use_num_logits_to_keep")),
)
# What a run does beyond its steps: whole numbers above 0, and words.
BEYOND_COUNTS: tuple[tuple[str, str], ...] = (
    ("save.limit", "save_total_limit"),
    *((f"stack.options.{name}", name) for name in ("dataloader_num_workers", "dataloader_prefetch_factor")),
)
SAVES, BEST = "save_strategy", "load_best_model_at_end"
NEVER = ("no", "false")  # YAML's no, out of quotes, is false
WEIGHTS_ONLY, LEAN = "save_only_model", "low_cpu_mem_usage"
EVALUATES = ("eval_strategy", "evaluation_strategy")
EVALUATED = ("per_device_eval_batch_size", "per_gpu_eval_batch_size")
EVAL_START, EVAL_STEPS = "eval_on_start", "eval_accumulation_steps"
NUMBERS = ("neftune_noise_alpha", "label_smoothing_factor")
SHARES = ("rpo_alpha", "cpo_alpha")  # numbers whose 0 says something too
SWITCHES = ("disable_dropout",)  # words of which false says something too
DDP_FLAGS = ("find_unused_parameters", "broadcast_buffers", "static_graph")

TRAINER_KEYS: tuple[KeyRow, ...] = (
    *read(
        TRAINER,
        (
            "per_device_train_batch_size per_gpu_train_batch_size gradient_accumulation_steps bf16 fp16 optim "
            "optim_args optim_target_modules adafactor max_grad_norm label_smoothing_factor activation_checkpointing "
            "activation_checkpointing_kwargs gradient_checkpointing gradient_checkpointing_kwargs torch_compile "
            "use_liger_kernel use_liger liger_kernel_config neftune_noise_alpha torch_empty_cache_steps "
            "ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph fsdp fsdp_config "
            "fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params deepspeed parallelism_config optim_bits"
        ).split(),
    ),
    *read(TRAINER, "save_total_limit save_only_model dataloader_num_workers dataloader_prefetch_factor".split()),
    *read(TRAINER, (*EVALUATES, *EVALUATED, EVAL_START, EVAL_STEPS, SAVES, BEST)),
    *nothing(
        TRAINER,
        (
            "output_dir overwrite_output_dir do_train do_eval do_predict eval_steps eval_delay "
            "learning_rate weight_decay adam_beta1 adam_beta2 adam_epsilon num_train_epochs max_steps "
            "lr_scheduler_type lr_scheduler_kwargs warmup_steps warmup_ratio log_level log_level_replica "
            "log_on_each_node logging_dir logging_strategy logging_first_step logging_steps logging_nan_inf_filter "
            "save_steps save_safetensors save_on_each_node restore_callback_states_from_checkpoint "
            "no_cuda use_mps_device seed data_seed average_tokens_across_devices tf32 local_rank ddp_backend "
            "ddp_timeout dataloader_drop_last dataloader_pin_memory "
            "dataloader_persistent_workers dataloader_multiprocessing_context "
            "dataloader_in_order run_name disable_tqdm remove_unused_columns label_names "
            "metric_for_best_model greater_is_better ignore_data_skip report_to project trackio_space_id "
            "trackio_bucket_id trackio_static_space_id length_column_name group_by_length train_sampling_strategy "
            "push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_always_push hub_revision "
            "resume_from_checkpoint push_to_hub_model_id push_to_hub_organization push_to_hub_token "
            "skip_memory_metrics include_tokens_per_second include_num_input_tokens_seen include_for_metrics "
            "include_inputs_for_metrics eval_use_gather_object eval_do_concat_batches debug "
            "past_index ray_scope mp_parameters fp16_backend half_precision_backend fp16_opt_level tpu_num_cores "
            "tpu_metrics_debug use_legacy_prediction_loop torchdynamo dispatch_batches split_batches "
            "accelerator_config torch_compile_backend use_ipex enable_jit_checkpoint _n_gpu "
            "full_determinism bf16_full_eval fp16_full_eval prediction_loss_only"
        ).split(),
    ),
    *uncounted(
        TRAINER,
        (
            ("batch_eval_metrics", HIGH),
            ("auto_find_batch_size", HIGH),
            ("use_cache", LOW),
            ("use_cpu", EITHER),
            ("jit_mode_eval", EITHER),
            ("torch_compile_mode", LOW),
            ("tp_size", HIGH),
        ),
    ),
)
MODEL_KEYS: tuple[KeyRow, ...] = (
    *read(LAUNCH, (*LENGTHS, "model_name_or_path", "model_name", "dtype", "torch_dtype", "attn_implementation")),
    *read(LAUNCH, ("low_cpu_mem_usage",)),
    *read(LAUNCH, ("use_flash_attention_2", "use_flash_attn", "model_init_kwargs")),
    *read(
        PEFT,
        (
            "use_peft use_lora lora_r lora_rank lora_dropout lora_target_modules lora_modules_to_save lora_bias "
            "use_dora lora_target_parameters"
        ).split(),
    ),
    *nothing(PEFT, ("lora_alpha", "lora_task_type", "use_rslora")),
    *read(BNB, "load_in_4bit load_in_8bit bnb_4bit_quant_type bnb_4bit_use_double_quant use_bnb_nested_quant".split()),
    *read(BNB, ("use_4bit", "use_nested_quant", "use_8bit")),
    *nothing(BNB, ("bnb_4bit_compute_dtype",)),  # products of 4-bit weights read what autocast says
    *uncounted(BNB, (("bnb_4bit_quant_storage", EITHER), ("bnb_4bit_quant_storage_dtype", EITHER))),
    *nothing(
        LAUNCH,
        (
            "model_revision trust_remote_code use_fast_tokenizer tokenizer_name tokenizer_name_or_path cache_dir "
            "config_name token use_auth_token model_type dataset_name dataset_config "
            "dataset_config_name dataset_train_split dataset_test_split dataset_streaming dataset_text_field "
            "dataset_num_proc dataset_batch_size dataset_kwargs dataset_path data_path train_file validation_file "
            "validation_split_percentage test_file max_train_samples max_eval_samples max_predict_samples "
            "preprocessing_num_workers overwrite_cache streaming keep_linebreaks datasets data_files splits "
            "chat_template chat_template_path chat_template_format eval_data_path lazy_preprocess add_special_tokens "
            "append_concat_token wandb_project wandb_entity wandb_run_name exp_name max_samples text_column "
            "dataset_mixer dataset_splits dataset_configs dataset_mixture auto_insert_empty_system_msg "
            "hub_model_revision test_split_size ignore_bias_buffers device_map"
        ).split(),
    ),
)
