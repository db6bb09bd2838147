ARGS=(
  --num-layers 12 --hidden-size 512 --num-attention-heads 8
  --seq-length 1024 --max-position-embeddings 1024
  --micro-batch-size 4 --global-batch-size 32
  --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1
  --no-gradient-accumulation-fusion --attention-softmax-in-fp32 --attention-backend unfused
  --deterministic-mode --log-params-norm --log-num-zeros-in-grad --bf16
)
export NVTE_ALLOW_NONDETERMINISTIC_ALGO=0
export CUBLAS_WORKSPACE_CONFIG=:4096:8
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 pretrain_gpt.py "${ARGS[@]}"
