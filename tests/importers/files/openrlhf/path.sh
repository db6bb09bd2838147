MODEL=meta-llama/Llama-3.1-8B
deepspeed --num_gpus=2 openrlhf/cli/train_sft.py --pretrain $MODEL --max_len 1024 --micro_train_batch_size 1 --train_batch_size 16
