"""Megatron-LM arguments that move memory in a way that is not counted, each with the direction of the error."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.option_row import Direction

CONFIG = Source(
    "Megatron-Core settings behind arguments",
    "megatron/core/transformer/transformer_config.py, model_parallel_config.py, distributed/*_config.py", "2026-08",
)  # fmt: skip

_LOW = (
    "--fp32-residual-connection --attention-output-gate --qk-l2-norm --qk-clip --softmax-type "
    "--moe-shared-expert-gate --moe-z-loss-coeff --moe-input-jitter-eps --enable-mhc-connections "
    "--mhc-num-residual-streams --overlap-dispatch-backward-with-experts-wgrad --tp-comm-overlap-cfg "
    "--overlap-cpu-optimizer-d2h-h2d --reset-attention-mask --log-max-attention-logit "
    "--fp8-output-proj --moe-enable-routing-replay --moe-router-padding-for-quantization "
    "--eval-micro-batch-size --gtp-remat-nccl-ub --gtp-expert-remat-nccl-ub --moe-ncclep-zero-copy "
    "--megatron-fsdp-max-pool-double-buffer --fsdp-db-use-persist-buf-on-alloc-fail "
    "--ddp-reduce-scatter-with-fp32-accumulation --gtp-remat-reduce-scatter-with-fp32-accumulation --mtp-standalone "
    "--mtp-hsm --logits-save-top-k --logits-load-dir --optimizer-cuda-graph --use-transformer-engine-op-fuser "
    "--enable-cuda-graph --moe-extended-tp --create-all-gather-group --save-dgrads-interval --save-wgrads-interval "
    "--save-activations-interval --export-kd-teacher-load --export-kd-cfg "
)
_HIGH = (
    "--fused-residual-rmsnorm --use-fused-weighted-squared-relu --mlp-chunks-for-training --fp16-lm-cross-entropy "
    "--freeze-all-layers --reuse-grad-buf-for-mxfp8-param-ag "
    "--ep-overlap-early-attn-memory-release --tensor-parallel-num-weight-shards "
    "--expert-tensor-parallel-num-weight-shards --gtp-remat-opt-in-modules --mhc-recompute-layer-num "
    "--fp4-param-gather --enable-full-sharding-in-hsdp --mtp-use-repeated-layer "
)
_EITHER = (
    "--apply-residual-connection-post-layernorm --window-size --window-attn-skip-freq "
    "--experimental-attention-variant --linear-attention-freq --moe-latent-size --use-te-activation-func "
    "--moe-paged-stash --spec --max-seqlen-per-dp-cp-rank --hybrid-context-parallel --output-logit-dtype "
    "--moe-expert-rank-capacity-factor --megatron-fsdp-version "
    "--megatron-fsdp-enable-fine-grained-param-gather --torch-fsdp2-no-reshard-after-forward "
    "--te-precision-config-file --kitchen-config-file --kitchen-recipe-number --use-kitchen-attention "
    "--no-fp8-wgrad --disable-fp8-wgrad --fp4-recipe --fp8-quantizer-factory --fp4-quantizer-factory "
    "--no-pin-cpu-params --moe-single-grouped-weight --moe-use-grouped-tensor "
    "--use-grouped-gemm-for-dense-mlp --use-grouped-gemm-for-shared-expert --activation-func-clamp-value "
    "--mla-down-proj-fusion --pipeline-model-parallel-split-rank --encoder-pipeline-model-parallel-size "
    "--encoder-tensor-model-parallel-size --moe-token-dropping --dataloader-inter-document-masking "
    "--cpu-offloading-retain-pinned-cpu-buffers --activation-offload-fraction --min-offloaded-tensor-size "
    "--delta-offload-bytes-across-pp-ranks --delay-offload-until-cuda-graph "
    "--fine-grained-offloading-max-inflight-offloads --moe-apply-probs-on-input "
    "--no-clone-scatter-output-in-embedding --disable-clone-scatter-output-in-embedding --batch-invariant-mode "
    "--no-scatter-gather-tensors-in-pipeline --no-contiguous-buffers-in-local-ddp --embedding-weights-in-fp32 "
    "--moe-permute-fusion-into-hybridep --moe-dispatch-fwd-dtype --moe-combine-bwd-dtype --fsdp-manual-registration "
)

UNCOUNTED: tuple[tuple[str, Direction], ...] = (
    *((name, Direction.LOW) for name in _LOW.split()),
    *((name, Direction.HIGH) for name in _HIGH.split()),
    *((name, Direction.EITHER) for name in _EITHER.split()),
)
