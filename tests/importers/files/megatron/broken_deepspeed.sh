deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 \
  --max-position-embeddings 128 --micro-batch-size 1 --deepspeed --deepspeed_config ds.json --zero-stage 1 --fp16
