deepspeed --num_gpus 2 train.py --deepspeed configs/nowhere.json --model_name_or_path Qwen/Qwen3-4B --max_length 1024
