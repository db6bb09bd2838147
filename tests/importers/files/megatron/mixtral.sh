#!/usr/bin/env bash
NNODES=${SLURM_NNODES:-"2"}
TOKENIZER_MODEL=${2:-tokenizer.model}
MOE=(--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall
     --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2)
torchrun --nproc_per_node 8 --nnodes $NNODES --node_rank ${RANK:-0} pretrain_gpt.py \
  --use-mcore-models --disable-bias-linear --seq-length 4096 --max-position-embeddings 32768 \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm --position-embedding-type rope \
  --swiglu --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8 \
  --no-masked-softmax-fusion --no-position-embedding --rotary-base 1000000 ${MOE[@]} \
  --tokenizer-type Llama2Tokenizer --tokenizer-model ${TOKENIZER_MODEL} --data-path $1 \
  --micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --bf16 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --expert-model-parallel-size 2 \
  --use-distributed-optimizer --sequence-parallel
