"""Keys of accelerate's configuration and of `accelerate launch`, and what each means for memory."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, uncounted
from trainledger.facts.option_row import Direction

CONFIG = Source("accelerate configuration", "accelerate/commands/config/config_args.py, commands/launch.py", "1.15.0")
PLUGINS = Source("accelerate plugins", "accelerate/utils/dataclasses.py", "0.24.1 to 1.15.0")
LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER
_FSDP = (
    "version sharding_strategy reshard_after_forward auto_wrap_policy min_num_params backward_prefetch "
    "backward_prefetch_policy forward_prefetch offload_params use_orig_params activation_checkpointing "
    "limit_all_gathers sync_module_states state_dict_type cpu_ram_efficient_loading"
).split()
_FSDP_NOTHING = "transformer_layer_cls_to_wrap ignored_modules".split()
_DEEPSPEED = (
    "zero_stage offload_optimizer_device offload_param_device offload_optimizer_nvme_path offload_param_nvme_path "
    "gradient_accumulation_steps gradient_clipping deepspeed_config_file zero3_init_flag zero3_save_16bit_model"
).split()
_DEEPSPEED_NOTHING = (
    "deepspeed_multinode_launcher deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter "
    "deepspeed_moe_layer_cls_names"
).split()
_MESH = "dp_replicate_size dp_shard_size tp_size cp_size sp_size".split()
_MESH_NOTHING = (
    "cp_backend cp_comm_strategy sp_backend sp_seq_length sp_seq_length_is_variable sp_attn_implementation"
).split()
SECTIONS = ("fsdp_config", "deepspeed_config", "parallelism_config")


def _below(section: str, prefix: str, names: list[str]) -> tuple[str, ...]:
    return tuple(f"{section}.{start}{name}" for name in names for start in dict.fromkeys((prefix, "")))


# the Trainer's `fsdp_config` in a file of its own, with and without the prefix
FSDP_FILE_SIGNS = tuple(
    f"{start}{name}"
    for name in (*_FSDP, "min_num_params", *_FSDP_NOTHING)
    for start in ("fsdp_", "")
    if name != "version"
)
FSDP_FILE_KEYS: tuple[KeyRow, ...] = (
    *read(PLUGINS, (*dict.fromkeys(FSDP_FILE_SIGNS), "version", "fsdp_version", "xla")),
    *nothing(PLUGINS, ("xla_fsdp_settings", "xla_fsdp_settings.*", "xla_fsdp_v2", "xla_fsdp_grad_ckpt")),
)
ACCELERATE_KEYS: tuple[KeyRow, ...] = (
    *read(CONFIG, "distributed_type mixed_precision num_processes num_machines use_cpu gpu_ids".split()),
    *read(CONFIG, ("megatron_lm_config", "megatron_lm_config.*")),
    *read(CONFIG, "gradient_accumulation_steps dynamo_backend dynamo_config.dynamo_backend fsdp_version".split()),
    *read(PLUGINS, _below("fsdp_config", "fsdp_", _FSDP)),
    *read(PLUGINS, _below("deepspeed_config", "", _DEEPSPEED)),
    *read(PLUGINS, _below("parallelism_config", "parallelism_config_", _MESH)),
    *nothing(
        CONFIG,
        (
            "compute_environment machine_rank main_process_ip main_process_port main_training_function rdzv_backend "
            "same_network tpu_env tpu_use_cluster tpu_use_sudo tpu_name tpu_zone command_file commands tpu_vm "
            "downcast_bf16 debug enable_cpu_affinity use_cluster mpirun_config mpirun_config.* fp8_config.* "
            "dynamo_config.dynamo_use_dynamic dynamo_config.dynamo_use_fullgraph deepspeed_hostfile "
            "deepspeed_multinode_launcher ipex_config ipex_config.* quiet module no_python max_restarts role "
            "monitor_interval num_cpu_threads_per_process rdzv_conf log_dir tee multi_gpu use_fsdp use_deepspeed "
            "use_parallelism_config config_file dynamo_use_fullgraph dynamo_use_dynamic"
        ).split(),
    ),
    *nothing(PLUGINS, _below("fsdp_config", "fsdp_", _FSDP_NOTHING)),
    *nothing(PLUGINS, _below("deepspeed_config", "", _DEEPSPEED_NOTHING)),
    *nothing(PLUGINS, _below("parallelism_config", "parallelism_config_", _MESH_NOTHING)),
    *uncounted(
        PLUGINS,
        (
            ("fsdp_config.fsdp_activation_checkpointing_offload", HIGH),
            ("fsdp_config.activation_checkpointing_offload", HIGH),
            ("dynamo_config.dynamo_mode", LOW),
            ("dynamo_mode", LOW),
            ("dynamo_config.dynamo_use_regional_compilation", EITHER),
            ("fp8_config", EITHER),
            ("fp8_backend", EITHER),
        ),
    ),
)
ZERO_STAGE = FilledRow("deepspeed.stage", 2, "zero_stage 2", PLUGINS)
OPTIONS = FilledRow("parallel.options.use_orig_params", False, "fsdp_use_orig_params false", PLUGINS)
