#!/bin/bash
# Llama-3 70B cut to 12 layers, 8 devices
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=1
WORLD_SIZE=$(($GPUS_PER_NODE * $NNODES))
TP=1; PP=2
DP=$((WORLD_SIZE / (TP * PP)))
MICRO_BATCHES=4

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NNODES
)
MODEL_ARGS=(
    --num-layers 12
    --hidden-size 8192
    --ffn-hidden-size 28672
    --num-attention-heads 64
    --group-query-attention
    --num-query-groups 8
    --seq-length 4096
    --max-position-embeddings 4096
    --position-embedding-type rope   # no table of positions
    --normalization RMSNorm
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --tokenizer-type NullTokenizer
    --vocab-size 128257
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size $((MICRO_BATCHES * DP))
    --bf16
    --use-distributed-optimizer
    --cross-entropy-loss-fusion
    --cross-entropy-fusion-impl te
    --lr 1e-4 --train-iters 10
)
torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${TRAINING_ARGS[@]}" \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP 2>&1 | tee run.log
