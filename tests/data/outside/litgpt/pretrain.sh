litgpt pretrain pythia-1b --devices 4 --precision bf16-true --train.micro_batch_size 8 --train.global_batch_size 256 --train.max_seq_length 2048 --tokenizer_dir checkpoints/EleutherAI/pythia-1b
