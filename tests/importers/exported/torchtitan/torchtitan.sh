#!/bin/bash
# Written from a plan for torchtitan. Data, learning rate and schedule are not in a plan: add them.
# The same estimate: trainledger estimate torchtitan.sh --framework-version torchtitan==0.2.2 --framework-version torch==2.12
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # stack.allocator
torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file torchtitan.toml
