#!/bin/bash
export NGPU=32
CONFIG_FILE="./torchtitan/models/qwen3/train_configs/qwen3_32b.toml" ./run_train.sh \
  --training.local_batch_size=16 --parallelism.tensor_parallel_degree=8 \
  --activation_checkpoint.mode full --metrics.enable_wandb
