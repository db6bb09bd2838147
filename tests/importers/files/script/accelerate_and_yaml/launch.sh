#!/usr/bin/env bash
ACCELERATE_LOG_LEVEL=info accelerate launch --config_file zero2.yaml --num_processes=2 scripts/dpo.py --config dpo.yaml --beta 0.2
