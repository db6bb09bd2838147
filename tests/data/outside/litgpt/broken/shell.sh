litgpt finetune_lora $MODEL --train.micro_batch_size $MB --train.max_seq_length 512
