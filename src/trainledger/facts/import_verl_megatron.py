"""Keys of verl's command lines where Megatron-Core trains: degrees, recompute, what leaves the device."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow

ENGINE = Source("verl's Megatron engine", "verl/trainer/config/{engine,optim}/megatron.yaml", "0.7.0")
BUILT = Source(
    "verl's Megatron models", "verl/utils/megatron_utils.py, make_megatron_module; mbridge/core/util.py, get_model",
    "0.7.0; 0.15.1",
)  # fmt: skip
ACTOR, REF, CRITIC = "actor_rollout_ref.actor.megatron.", "actor_rollout_ref.ref.megatron.", "critic.megatron."
DEGREES = {
    "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size", "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size", "etp": "expert_tensor_parallel_size",
}  # fmt: skip
SEQUENCE, DISTRIBUTED = "sequence_parallel", "use_distributed_optimizer"
PARAMS, OPTIMIZER = "param_offload", "optimizer_offload"
STATES = {  # by what is offloaded: weights with their gradients, and what the optimizer keeps
    (True, True): "offloaded", (True, False): "weights-offloaded", (False, True): "optimizer-offloaded",
}  # fmt: skip
OVERRIDE = f"{ACTOR}override_transformer_config."
AGAIN, METHOD, LAYERS, MODULES = (
    f"{OVERRIDE}recompute_{one}" for one in ("granularity", "method", "num_layers", "modules")
)
BACKEND = f"{OVERRIDE}attention_backend"
BACKENDS = {"flash": "flash", "fused": "fused", "unfused": "unfused", "local": "unfused"}
GRANULARITIES = {"full": "full", "selective": "selective", "null": "none"}
CORE = ("core_attn",)  # what runs again where modules are not named
DTYPE, ENTROPY = f"{ACTOR}dtype", "actor_rollout_ref.actor.entropy_coeff"
CLIP, ADAPTER = "actor_rollout_ref.actor.optim.clip_grad", "actor_rollout_ref.model.lora.rank"
STRAIGHT = {  # of the layers' configuration, what a plan's options say by another name
    f"{OVERRIDE}num_layers_in_first_pipeline_stage": "parallel.options.decoder_first_pipeline_num_layers",
    f"{OVERRIDE}num_layers_in_last_pipeline_stage": "parallel.options.decoder_last_pipeline_num_layers",
}
READ = (
    *(f"{part}{name}" for part in (REF, CRITIC) for name in DEGREES.values()),
    *(f"{ACTOR}{one}" for one in (SEQUENCE, DISTRIBUTED)),
    *(f"{part}{PARAMS}" for part in (ACTOR, REF, CRITIC)), *(f"{part}{OPTIMIZER}" for part in (ACTOR, CRITIC)),
    AGAIN, METHOD, LAYERS, MODULES, BACKEND, DTYPE, ENTROPY, CLIP, ADAPTER, *STRAIGHT,
)  # fmt: skip
QUIET = (
    *(f"{part}{one}" for part in (ACTOR, REF, CRITIC) for one in (
        "use_dist_checkpointing", "dist_checkpointing_path", "dist_checkpointing_prefix", "seed", "use_mbridge",
        "vanilla_mbridge", "grad_offload",
    )),
)  # fmt: skip
FILLED = (
    FilledRow("stack.attention", "flash", "attention_backend flash", ENGINE),
    FilledRow("stack.recompute", {"kind": "none"}, "recompute_granularity null", ENGINE),
    FilledRow("precision.weights", "bf16", "megatron.dtype bfloat16", ENGINE),
    FilledRow("precision.compute", "bf16", "megatron.dtype bfloat16", ENGINE),
    FilledRow("precision.gradients", "fp32", "grad_reduce_in_fp32 True", BUILT),
    FilledRow("precision.reduce", "fp32", "grad_reduce_in_fp32 True", BUILT),
    FilledRow("precision.master", "fp32", "Megatron's optimizer updates 16-bit weights in fp32", BUILT),
    FilledRow("optimizer.name", "adamw", "optim.optimizer adam, its weight decay apart", ENGINE),
    FilledRow("optimizer.grad_clip", 1.0, "clip_grad 1.0", ENGINE),
)
