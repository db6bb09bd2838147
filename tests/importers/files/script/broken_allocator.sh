export PYTORCH_CUDA_ALLOC_CONF=expandable_segment:True
python train.py --model_name_or_path Qwen/Qwen3-4B --max_length 1024 --per_device_train_batch_size 1
