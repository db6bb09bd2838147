#!/bin/bash
#SBATCH --job-name=gpt2xl
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
ZERO=1
GBS=60
if [ "$ZERO" -eq 1 ]; then
    PARALLEL="--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
else
    PARALLEL=""
fi
MICRO=$(( GBS / 4 ))
OPTIONS=" \
    --num-layers 48 --hidden-size 1600 --num-attention-heads 25 \
    --seq-length 1024 --max-position-embeddings 1024 \
    --micro-batch-size ${MICRO} --global-batch-size ${GBS} \
    --bf16 ${PARALLEL} \
    --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt \
    --log-interval 10 --save ckpt --load ckpt"
run_cmd="python -u pretrain_gpt.py ${OPTIONS}"
srun -l sh -c "${run_cmd}"
