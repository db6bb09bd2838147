torchrun --nproc_per_node=8 --rdzv_backend c10d -m torchtitan.train --module llama3 --config llama3_8b_mxfp8 \
  --training.local_batch_size=2 --training.seq_len=8192 --parallelism.tensor_parallel_degree=2
