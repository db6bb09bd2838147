torchrun --nproc_per_node 8 -m axolotl.cli.train fsdp1-prefixed.yml
