tune run full_finetune_singel_device --config ../1b_full_single.yaml
