torchrun --nproc_per_node $GPUS pretrain_gpt.py --num-layers twelve --hidden-size 512 --num-attention-heads 7 \
  --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size $MBS --bf16 --fp16 \
  --recompute-granularity full --moe-layer-freq "([0]*3+__import__('os'))" --num-experts 8 --fp8-recipe
