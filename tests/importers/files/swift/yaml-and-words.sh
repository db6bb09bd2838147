NPROC_PER_NODE=2 swift sft sft.yaml --max_length 1024
