tune run full_finetune_single_device --config 1b_full_single.yaml batch_size=2
