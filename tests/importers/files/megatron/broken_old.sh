python -m torch.distributed.launch --nproc_per_node 8 pretrain_gpt.py --model-parallel-size 2 --num-layers 4 \
 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 --batch-size 4 --checkpoint-activations --fp16
