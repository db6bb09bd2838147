litgpt finetune lora --checkpoint_dir checkpoints/tiiuae/falcon-7b --quantize nf4 --precision 16-true --train.micro_batch_size 1 --train.max_seq_length 256 --lora_projection true
