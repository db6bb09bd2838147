python pretrain_mamba.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 \
  --max-position-embeddings 128 --micro-batch-size 1 --hybrid-layer-pattern M*M- --bf16
