#!/bin/bash
# Written from a plan for axolotl. Data, learning rate and schedule are not in a plan: add them.
# The same estimate: trainledger estimate axolotl.sh --framework-version torch==2.14.1 --framework-version transformers==5.24.0 --set stack.versions.accelerate=null
torchrun --nproc_per_node 1 -m axolotl.cli.train axolotl.yaml
