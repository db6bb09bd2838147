#!/bin/bash
# Written from a plan for llama-factory. Data, learning rate and schedule are not in a plan: add them.
# The same estimate: trainledger estimate llama-factory.sh --framework-version torch==2.14.1 --framework-version transformers==5.24.0 --set stack.versions.accelerate=null
FORCE_TORCHRUN=1 NNODES=1 NPROC_PER_NODE=1 llamafactory-cli train llama-factory.yaml
