nproc_per_node=8

NPROC_PER_NODE=$nproc_per_node \
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
swift sft \
    --model Qwen/Qwen2.5-7B \
    --tuner_type full \
    --dataset data \
    --torch_dtype bfloat16 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps $(expr 32 / $nproc_per_node) \
    --max_length 8192 \
    --packing true \
    --attn_impl flash_attn \
    --use_liger_kernel true \
    --deepspeed zero3
