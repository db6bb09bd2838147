"""What `null` says where an option's framework takes it: mostly that the key is left out, in one place another word.

An option that is not here takes no null: its framework would refuse it, or fail on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.options import find_option, option_names
from trainledger.facts.options_parallel import (
    ACCELERATE,
    DDP,
    DEEPSPEED,
    DEEPSPEED_TYPES,
    FSDP1,
    MEGATRON,
    MEGATRON_MOE,
    MEGATRON_PP,
    TITAN,
)
from trainledger.facts.options_stack import HF_LOADING, HF_TRAINER, MEGATRON_CONFIG, TRL
from trainledger.facts.options_stack import MEGATRON as MEGATRON_STACK
from trainledger.facts.options_training import ADAFACTOR, GALORE, MUON, PEFT

PARALLEL, STACK, OPTIMIZER, ADAPTER = "parallel.options", "stack.options", "optimizer.options", "adapter.options"


@dataclass(frozen=True, slots=True)
class Null:
    """Options of the map `where` that take null, and the value that it stands for; None: the key left out.

    Raises ValueError for a name that is no option there, nor a mapping of options.
    """

    where: str
    names: tuple[str, ...]
    source: Source
    means: str | None = None

    def __post_init__(self) -> None:
        for name in self.names:
            within = any(one.startswith(f"{name}.") for one in option_names(self.where))
            if not (within or find_option(self.where, name)):
                raise ValueError(f"{self.where}.{name} is no option")


NULLS: tuple[Null, ...] = (
    Null(PARALLEL, ("backward_prefetch",), FSDP1, "NO_PREFETCH"),
    Null(PARALLEL, ("bucket_cap_mb", "comm_hook", "delay_all_reduce_named_params"), DDP),
    Null(PARALLEL, ("sharding_strategy", "buffer_dtype"), FSDP1),
    Null(
        PARALLEL,
        (
            "auto_wrap_policy", "min_num_params", "fsdp_version", "forward_prefetch", "use_orig_params",
            "limit_all_gathers", "sync_module_states", "cpu_ram_efficient_loading", "activation_checkpointing",
            "state_dict_type", "transformer_layer_cls_to_wrap",
        ),
        ACCELERATE,
    ),
    Null(
        PARALLEL,
        (
            "overlap_comm", "offload_optimizer", "offload_param", "offload_optimizer.nvme_path",
            "offload_param.nvme_path",
        ),
        DEEPSPEED,
    ),
    Null(PARALLEL, ("data_types", "data_types.grad_accum_dtype", "communication_data_type"), DEEPSPEED_TYPES),
    Null(
        PARALLEL,
        (
            "ddp_bucket_size", "ddp_num_buckets", "suggested_communication_unit_size", "pipeline_model_parallel_layout",
            "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "megatron_fsdp_main_grads_dtype",
            "megatron_fsdp_grad_comm_dtype",
        ),
        MEGATRON,
    ),
    Null(
        PARALLEL,
        (
            "microbatch_group_size_per_virtual_pipeline_stage", "cp_comm_type", "hierarchical_context_parallel_sizes",
        ),
        MEGATRON_PP,
    ),
    Null(
        PARALLEL,
        (
            "moe_expert_capacity_factor", "moe_router_dtype", "moe_router_num_groups", "moe_router_group_topk",
            "moe_router_padding_for_fp8", "moe_router_padding_for_quantization",
        ),
        MEGATRON_MOE,
    ),
    Null(PARALLEL, ("module_fqns_per_model_part",), TITAN),
    Null(STACK, ("low_cpu_mem_usage", "device_map"), HF_LOADING),
    Null(STACK, ("dataloader_prefetch_factor", "neftune_noise_alpha", "torch_empty_cache_steps"), HF_TRAINER),
    Null(STACK, ("ref_model", "precompute_ref_batch_size", "rpo_alpha"), TRL),
    Null(STACK, ("offload_modules", "distribute_saved_activations"), MEGATRON_CONFIG),
    Null(STACK, ("cuda_graph_scope", "check_weight_hash_across_dp_replicas_interval"), MEGATRON_STACK),
    Null(OPTIMIZER, ("beta1",), ADAFACTOR),
    Null(OPTIMIZER, ("adjust_lr_fn",), MUON),
    Null(OPTIMIZER, ("target_modules",), GALORE),
    Null(
        ADAPTER,
        (
            "layers_to_transform", "layers_pattern", "exclude_modules", "num_virtual_tokens", "token_dim", "num_layers",
            "num_transformer_submodules", "encoder_hidden_size", "trainable_token_indices", "target_parameters",
            "feedforward_modules", "prompt_tuning_init_text",
        ),
        PEFT,
    ),
)  # fmt: skip
MEANT: dict[tuple[str, str], str | None] = {(row.where, name): row.means for row in NULLS for name in row.names}


def null_taken(where: str, name: str) -> bool:
    """Whether the option `name` (dotted when nested), or the mapping of options of that name, may be null."""
    return (where, name) in MEANT


def null_means(where: str, name: str) -> str | None:
    """The value that null stands for; None where it is the key left out."""
    return MEANT[where, name]
