GPT_ARGS="
    --tensor-model-parallel-size 2 \
    --num-layers 24 \
    --hidden-size 1024 \
    --num-attention-heads 16 \
    --seq-length 1024 \
    --max-position-embeddings 1024 \
    --micro-batch-size 4 \
    --fp16 --transformer-impl local --use-flash-attn --recompute-activations --optimizer sgd \
    --num-distributed-optimizer-instances 2 --decoder-first-pipeline-num-layers 4 --clip-grad 0
"
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py $GPT_ARGS
