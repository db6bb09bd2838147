NGPU=8 NNODES=32 MODULE=deepseek_v3 CONFIG=deepseek_v3_671b ./run_train.sh \
  --parallelism.pipeline_parallel_degree=8 --parallelism.pipeline_parallel_layers_per_stage=4 --parallelism.expert_parallel_degree=32
