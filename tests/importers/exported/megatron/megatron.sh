#!/bin/bash
# Written from a plan for megatron. Data, learning rate and schedule are not in a plan: add them.
# The same estimate: trainledger estimate megatron.sh --framework-version torch==2.14.1 --set stack.versions.megatron=null
ARGS=(
  --num-layers 3  # model.num_hidden_layers
  --hidden-size 256  # model.hidden_size
  --num-attention-heads 4  # model.num_attention_heads
  --ffn-hidden-size 640  # model.intermediate_size
  --kv-channels 64  # model.head_dim
  --position-embedding-type rope  # model.position_embedding_type
  --normalization RMSNorm  # model.normalization
  --hidden-dropout 0.0  # model.hidden_dropout
  --attention-dropout 0.0  # model.attention_dropout
  --padded-vocab-size 1024  # model.vocab_size
  --swiglu  # model.hidden_act
  --disable-bias-linear  # model.add_bias_linear
  --untie-embeddings-and-output-weights  # model.tie_word_embeddings
  --group-query-attention  # model.num_key_value_heads
  --num-query-groups 2  # model.num_key_value_heads
  --micro-batch-size 2  # batch.micro_batch
  --global-batch-size 32  # batch.accumulation
  --seq-length 512  # batch.sequence
  --bf16  # precision.weights
  --accumulate-allreduce-grads-in-fp32  # precision.gradients
  --attention-backend flash  # stack.attention
  --tensor-model-parallel-size 2  # parallel.tp
  --use-distributed-optimizer  # parallel.strategy
  --sequence-parallel  # parallel.sp
  --clip-grad 1.0  # optimizer.grad_clip
  --transformer-impl transformer_engine  # stack.kernels
)
torchrun --nproc_per_node 8 pretrain_gpt.py "${ARGS[@]}"
