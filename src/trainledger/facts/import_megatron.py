"""Megatron-LM arguments that move memory: read by the importer, taken as an option of the plan, or not counted."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_megatron_silent import SILENT
from trainledger.facts.import_rows import KeyRow, read, uncounted
from trainledger.facts.megatron_arguments import CONFIG, UNCOUNTED
from trainledger.facts.option_row import Direction
from trainledger.facts.options import find_option

ARGUMENTS = Source("Megatron-LM arguments", "megatron/training/arguments.py", "core_v0.4.0 to 2026-08")

_READ = (
    "--num-layers --encoder-num-layers --decoder-num-layers --hidden-size --num-attention-heads "
    "--group-query-attention --num-query-groups --ffn-hidden-size --kv-channels --max-position-embeddings "
    "--position-embedding-type --use-rotary-position-embeddings --normalization --swiglu --quick-geglu "
    "--squared-relu --openai-gelu --disable-bias-linear --add-qkv-bias --qk-layernorm --hidden-dropout "
    "--attention-dropout --untie-embeddings-and-output-weights --make-vocab-size-divisible-by --vocab-size "
    "--padded-vocab-size --no-pad-vocab-size --disable-pad-vocab-size --vocab-extra-ids --tokenizer-type "
    "--tokenizer-model --seq-length --encoder-seq-length --decoder-seq-length --micro-batch-size "
    "--global-batch-size --batch-size --num-experts --moe-layer-freq --moe-ffn-hidden-size --moe-router-topk "
    "--moe-shared-expert-intermediate-size --multi-latent-attention --q-lora-rank --kv-lora-rank --qk-head-dim "
    "--qk-pos-emb-head-dim --v-head-dim --mtp-num-layers --tensor-model-parallel-size --model-parallel-size "
    "--pipeline-model-parallel-size --context-parallel-size --expert-model-parallel-size "
    "--expert-tensor-parallel-size --sequence-parallel --num-layers-per-virtual-pipeline-stage "
    "--num-virtual-stages-per-pipeline-rank --pipeline-model-parallel-layout --use-distributed-optimizer "
    "--use-megatron-fsdp --use-custom-fsdp --use-torch-fsdp2 --num-distributed-optimizer-instances --bf16 --fp16 "
    "--grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32 --use-precision-aware-optimizer --main-grads-dtype "
    "--main-params-dtype --exp-avg-dtype --exp-avg-sq-dtype --fp8-format --fp8-hybrid --fp8-e4m3 --fp8-recipe "
    "--fp8-param-gather --fp4-format --optimizer --clip-grad --optimizer-cpu-offload --recompute-activations "
    "--recompute-granularity --recompute-method --recompute-num-layers --recompute-modules --moe-layer-recompute "
    "--checkpoint-activations --activations-checkpoint-method --activations-checkpoint-num-layers "
    "--transformer-impl --attention-backend --use-flash-attn --cross-entropy-loss-fusion "
    "--cross-entropy-fusion-impl --cpu-offloading-num-layers --fine-grained-activation-offloading "
    "--use-checkpoint-args --hybrid-layer-pattern --hybrid-override-pattern --is-hybrid-model "
    "--heterogeneous-layers-config-path --heterogeneous-layers-config-encoded-json --yaml-cfg --perform-rl-step "
    "--sft --skip-train --use-legacy-models --retro-add-retriever --moe-router-load-balancing-type --cp-comm-type "
    "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split --save --ckpt-format --async-save "
    "--no-save-optim --dist-ckpt-optim-fully-reshardable "
)
# How checkpoints are written, by --ckpt-format; and arguments that stand alone, with what the plan then says.
SAVED = {"torch": "megatron-torch", "torch_dist": "megatron-dist"}
SAVES: tuple[tuple[str, str, bool], ...] = (
    ("--async-save", "save.asynchronous", True),
    ("--no-save-optim", "save.optimizer", False),
    ("--dist-ckpt-optim-fully-reshardable", "save.resharded", True),
)
# Arguments and the model's keys that each says as it is, in both directions.
SIZES = (
    ("--max-position-embeddings", "max_position_embeddings"),
    ("--mtp-num-layers", "num_nextn_predict_layers"),
)
SHAPED = (("--position-embedding-type", "position_embedding_type"), ("--normalization", "normalization"))
DROPOUTS = (("--hidden-dropout", "hidden_dropout"), ("--attention-dropout", "attention_dropout"))
LATENT_RANKS = (
    ("--kv-lora-rank", "kv_lora_rank"), ("--qk-head-dim", "qk_nope_head_dim"),
    ("--qk-pos-emb-head-dim", "qk_rope_head_dim"), ("--v-head-dim", "v_head_dim"),
)  # fmt: skip
MODEL_ARGUMENTS = (
    ("--num-layers", "num_hidden_layers"), ("--hidden-size", "hidden_size"),
    ("--num-attention-heads", "num_attention_heads"), ("--ffn-hidden-size", "intermediate_size"),
    ("--kv-channels", "head_dim"), *SIZES, *SHAPED, *DROPOUTS, *LATENT_RANKS, ("--q-lora-rank", "q_lora_rank"),
    ("--padded-vocab-size", "vocab_size"), ("--num-experts", "num_experts"),
    ("--moe-router-topk", "num_experts_per_tok"), ("--moe-ffn-hidden-size", "moe_intermediate_size"),
    ("--moe-shared-expert-intermediate-size", "shared_expert_intermediate_size"),
)  # fmt: skip
# Arguments that stand alone, and what the model's keys then say.
ACTS: tuple[tuple[str, dict[str, object]], ...] = (
    ("--swiglu", {"hidden_act": "silu", "gated_linear_unit": True}),
    ("--quick-geglu", {"hidden_act": "quick_gelu", "gated_linear_unit": True}),
    ("--squared-relu", {"hidden_act": "relu2", "gated_linear_unit": False}),
)
SWITCHES: tuple[tuple[str, dict[str, object]], ...] = (
    ("--disable-bias-linear", {"add_bias_linear": False}),
    ("--untie-embeddings-and-output-weights", {"tie_word_embeddings": False}),
    ("--qk-layernorm", {"qk_layernorm": True}),
)
FLAGGED: tuple[tuple[str, dict[str, object]], ...] = (*ACTS, *SWITCHES, ("--add-qkv-bias", {"add_qkv_bias": True}))
_PARALLEL = (
    "--ddp-average-in-collective --ddp-bucket-size --ddp-num-buckets --ddp-pad-buckets-for-high-nccl-busbw "
    "--ddp-param-name-patterns-for-fp32-local-accumulation --decoder-first-pipeline-num-layers "
    "--decoder-last-pipeline-num-layers --defer-embedding-wgrad-compute --wgrad-deferral-limit "
    "--delay-wgrad-compute --data-parallel-sharding-strategy --outer-dp-sharding-strategy "
    "--megatron-fsdp-main-params-dtype --megatron-fsdp-main-grads-dtype --megatron-fsdp-grad-comm-dtype "
    "--overlap-grad-reduce --overlap-param-gather --overlap-param-gather-with-optimizer-step --use-tp-pp-dp-mapping "
    "--optimizer-offload-fraction "
    "--fsdp-double-buffer --suggested-communication-unit-size --overlap-p2p-communication-warmup-flush "
    "--microbatch-group-size-per-virtual-pipeline-stage --hierarchical-context-parallel-sizes --tp-comm-overlap "
    "--moe-expert-capacity-factor --moe-grouped-gemm --moe-pad-expert-input-to-capacity --moe-permute-fusion "
    "--moe-router-dtype --moe-token-dispatcher-type --moe-token-drop-policy --moe-router-fusion "
    "--moe-router-padding-for-fp8 --moe-flex-dispatcher-backend --moe-enable-deepep --moe-shared-expert-overlap "
    "--moe-use-legacy-grouped-gemm --overlap-moe-expert-parallel-comm --moe-router-pre-softmax "
    "--moe-router-score-function --moe-router-group-topk --moe-router-num-groups --moe-router-enable-expert-bias "
)
_STACK = (
    "--apply-query-key-layer-scaling --attention-softmax-in-fp32 --deterministic-mode "
    "--distribute-saved-activations --no-bias-gelu-fusion --no-bias-swiglu-fusion --no-bias-dropout-fusion "
    "--no-masked-softmax-fusion --no-rope-fusion --calculate-per-token-loss "
    "--check-weight-hash-across-dp-replicas-interval --cuda-graph-impl --cuda-graph-modules --external-cuda-graph "
    "--empty-unused-memory-level --log-num-zeros-in-grad --log-params-norm --manual-gc --no-persist-layer-norm "
    "--moe-router-force-load-balancing --offload-modules --first-last-layers-bf16 --num-layers-at-start-in-bf16 "
    "--num-layers-at-end-in-bf16 --cuda-graph-scope --fp8-amax-history-len "
)
_NAMED = (
    ("--use-nccl-ub", "parallel.options.nccl_ub"),
    ("--keep-fp8-transpose-cache", "parallel.options.keep_fp8_weight_transpose_cache"),
    ("--te-rng-tracker", "stack.options.use_te_rng_tracker"),
    ("--muon-tp-mode", "optimizer.options.muon_tp_mode"),
    ("--muon-scalar-optimizer", "optimizer.options.muon_scalar_optimizer"),
)
# arguments of Megatron-DeepSpeed, which is refused by name
DEEPSPEED = ("--deepspeed", "--deepspeed_config", "--deepspeed-config", "--zero-stage", "--zero_stage")
# arguments that turn off what is on without them: the plan's option, which becomes false
TURNED_OFF = {
    "--no-gradient-accumulation-fusion": "parallel.options.gradient_accumulation_fusion",
    "--no-align-grad-reduce": "parallel.options.align_grad_reduce",
    "--disable-align-grad-reduce": "parallel.options.align_grad_reduce",
    "--no-align-param-gather": "parallel.options.align_param_gather",
    "--no-overlap-p2p-communication": "parallel.options.overlap_p2p_comm",
    "--no-create-attention-mask-in-dataloader": "stack.options.create_attention_mask_in_dataloader",
    "--disable-jit-fuser": "stack.options.jit_fuser",
    "--no-use-layer-wise-param-layout": "parallel.options.use_layer_wise_param_layout",
    "--no-pin-cpu-grads": "parallel.options.pin_cpu_grads",
    "--muon-no-split-qkv": "optimizer.options.muon_split_qkv",
}


def _option(where: str, names: str) -> tuple[tuple[str, str], ...]:
    """Arguments with the option of the plan that has their name."""
    return tuple((name, f"{where}.options.{name.removeprefix('--').replace('-', '_')}") for name in names.split())


_ALL = (*_option("parallel", _PARALLEL), *_option("stack", _STACK), *_NAMED)
# arguments that an option of the plan takes; those that it has no row for add tensors that are not counted
OPTIONS: tuple[tuple[str, str], ...] = tuple(one for one in _ALL if find_option(*one[1].rsplit(".", 1)))
ROWS: tuple[KeyRow, ...] = (
    *read(ARGUMENTS, _READ.split()),
    *read(CONFIG, (name for name, _ in OPTIONS)),
    *read(CONFIG, (*TURNED_OFF, *DEEPSPEED)),
    *uncounted(CONFIG, ((name, Direction.LOW) for name, path in _ALL if (name, path) not in OPTIONS)),
    *uncounted(CONFIG, UNCOUNTED),
    *SILENT,
)
