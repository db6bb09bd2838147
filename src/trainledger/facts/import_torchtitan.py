"""torchtitan's settings, from its TOML files of 2024 and 2025 to the flags of its Python configurations: their keys.

Read in source: torchtitan/config_manager.py (2024-04 to 2025-05), torchtitan/config/job_config.py (0.1.0 to 0.2.2),
torchtitan/config/configs.py and models/*/config_registry.py (2026-02 to 2026-08), run_train.sh.
"""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import KeyRow, nothing, read, straight, uncounted
from trainledger.facts.option_row import Direction

NAME = "torchtitan"
HIGH, LOW, EITHER = Direction.HIGH, Direction.LOW, Direction.EITHER


SETTINGS = Source("torchtitan", "config_manager.py; config/job_config.py; config/configs.py", "0.0.2 to 0.2.2, 2026-08")

DEGREES = (
    "data_parallel_replicate_degree data_parallel_shard_degree tensor_parallel_degree pipeline_parallel_degree "
    "context_parallel_degree expert_parallel_degree expert_tensor_parallel_degree"
).split()
# Degrees and the plan's axes, in both directions.
AXES = (("tensor", "tp"), ("pipeline", "pp"), ("context", "cp"), ("expert", "ep"))
PLACES = ("parallelism", "training", "experimental")  # sections that degrees stood in, newest first
MESH_KEYS = (
    *DEGREES,
    *(
        "pipeline_parallel_schedule pipeline_parallel_microbatch_size pipeline_parallel_microbatches "
        "pipeline_parallel_layers_per_stage num_pp_microbatches disable_loss_parallel enable_sequence_parallel "
        "enable_async_tensor_parallel fsdp_reshard_after_forward pipeline_parallel_split_points "
        "module_fqns_per_model_part"
    ).split(),
)
FLOAT8 = ("quantize.linear.float8", "float8")
MX = ("quantize.linear.mx", "mx")

KEYS: tuple[KeyRow, ...] = (
    *read(SETTINGS, (f"{place}.{key}" for place in PLACES for key in MESH_KEYS)),
    *read(SETTINGS, (f"{place}.{key}" for place in FLOAT8 for key in ("recipe_name", "enable_fsdp_float8_all_gather"))),
    *read(SETTINGS, (f"{place}.recipe_name" for place in MX)),
    *read(
        SETTINGS,
        "model.name model.flavor model.converters training.local_batch_size training.batch_size "
        "training.global_batch_size training.seq_len training.max_context_length training.data_parallel_degree "
        "training.num_tokens_per_microbatch_per_dp_rank training.num_tokens_per_train_step training.dtype "
        "training.mixed_precision_param training.mixed_precision_reduce training.enable_cpu_offload training.compile "
        "compile compile.enable compile.components compile.enable_async_tensor_parallel optimizer.name "
        "optimizer.implementation optimizer.fused activation_checkpoint activation_checkpoint.mode "
        "activation_checkpoint.selective_ac_option activation_checkpoint.memory_budget "
        "float8.enable_float8_linear training.enable_float8_linear "
        "training.fp8_linear float8.force_recompute_fp8_weight_in_bwd comm.mode module config job.config_file "
        "checkpoint.enable checkpoint.enable_checkpoint checkpoint.keep_latest_k checkpoint.async_mode".split(),
    ),
    *straight(
        SETTINGS,
        (
            ("training.max_norm", "optimizer.grad_clip"),
            ("optimizer.early_step_in_backward", "optimizer.in_backward"),
            *(
                (f"parallelism.{name}", f"parallel.options.{name}")
                for name in (
                    "pipeline_parallel_first_stage_less_layers",
                    "pipeline_parallel_last_stage_less_layers",
                    "enable_compiled_autograd",
                    "context_parallel_rotate_method",
                    "enable_fsdp_symm_mem",
                )
            ),
            ("experimental.context_parallel_rotate_method", "parallel.options.context_parallel_rotate_method"),
            ("experimental.enable_compiled_autograd", "parallel.options.enable_compiled_autograd"),
        ),
    ),
    *nothing(
        SETTINGS,
        "job.* profiling.* profiler.* metrics.* model.norm_type model.tokenizer_path model.hf_assets_path "
        "model.print_after_conversion optimizer.lr optimizer.eps optimizer.beta1 optimizer.beta2 "
        "optimizer.weight_decay optimizer.* lr_scheduler.* training.dataset training.dataset_path training.steps "
        "training.warmup_steps training.seed training.gc_freq training.gc_debug training.data_parallel_type "
        "checkpoint.* comm.* fault_tolerance.* memory_estimation.* experimental.custom_import "
        "experimental.custom_args_module experimental.custom_model_path hf_assets_path dataloader.* debug.seed debug.* "
        "tokenizer.* dump_folder compile.backend compile.fullgraph "
        "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns activation_checkpoint.visualize_* "
        "activation_checkpoint.determinism_check activation_checkpoint.preserve_rng_state "
        "parallelism.context_parallel_load_balancer parallelism.context_parallel_ptrr_mask_key "
        "parallelism.spmd_backend validation.dataset validation.dataset_path validation.freq validation.steps "
        "validation.enable validator.freq validator.steps validator.enable job.use_for_integration_test".split(),
    ),
    *uncounted(
        SETTINGS,
        (
            ("validation.*", LOW),
            ("validator.*", LOW),
            ("training.deterministic", EITHER),
            ("training.disable_cuda_graphs", EITHER),
            ("training.debug_moe_force_load_balance", EITHER),
            ("activation_checkpoint.early_stop", EITHER),
            *((f"{place}.filter_fqns", EITHER) for place in (*FLOAT8, *MX)),
            *((f"{place}.precompute_float8_dynamic_scale_for_fsdp", EITHER) for place in FLOAT8),
            *((f"{place}.emulate", LOW) for place in FLOAT8),
            ("float8.scaling_type_*", EITHER),
            ("float8.moe_fqns*", HIGH),
            ("mx.*", EITHER),
            ("quantize.linear.mx.*", EITHER),
            ("quantize.grouped_mm.*", HIGH),
            ("parallelism.pipeline_parallel_schedule_csv", EITHER),
            ("experimental.pipeline_parallel_schedule_csv", EITHER),
            ("parallelism.expert_parallel_comm_backend", EITHER),
            ("override.*", EITHER),
            ("loss.*", EITHER),
        ),
    ),
)
