tune run --nproc_per_node $GPUS lora_finetune_distributed --config ../8b_lora.yaml batch_size=$BS
