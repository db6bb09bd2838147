tune run lora_finetune_single_device --config ../8b_lora.yaml
tune run lora_finetune_single_device --config ../8b_lora.yaml batch_size=4
