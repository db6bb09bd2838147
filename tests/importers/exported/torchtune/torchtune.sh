#!/bin/bash
# Written from a plan for torchtune. Data, learning rate and schedule are not in a plan: add them.
# The same estimate: trainledger estimate torchtune.sh --framework-version torch==2.14.1
tune run full_finetune_single_device --config torchtune.yaml
