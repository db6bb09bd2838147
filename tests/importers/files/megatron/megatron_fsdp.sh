#!/bin/bash
DTYPE="fp8"
if [[ "$DTYPE" == "fp8" ]] && [[ -n "$DTYPE" ]]; then
    DTYPE_ARGS=("--fp8-format hybrid" "--fp8-recipe tensorwise" "--fp8-amax-history-len 1024")
else
    DTYPE_ARGS=()
fi
torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py --use-megatron-fsdp --ckpt-format fsdp_dtensor \
   --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention \
   --num-query-groups 8 --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192 --swiglu \
   --position-embedding-type rope --normalization RMSNorm --disable-bias-linear --bf16 --grad-reduce-in-bf16 \
   --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 128 ${DTYPE_ARGS[@]} \
   --mock-data --tokenizer-type NullTokenizer --vocab-size 128256 --recompute-granularity full \
   --recompute-method uniform --recompute-num-layers 1 --no-gradient-accumulation-fusion --hidden-dropout 0 --attention-dropout 0
