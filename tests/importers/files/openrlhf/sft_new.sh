torchrun --nproc_per_node 4 -m openrlhf.cli.train_sft --model.model_name_or_path meta-llama/Llama-3.1-8B \
  --train.batch_size 64 --data.max_len 8192 --ds.attn_implementation sdpa --ds.grad_accum_dtype fp32 --ds.overlap_comm \
  --ds.zpg 4 --ds.zero_stage 3 --max_norm 0.5 --optim muon --ds.use_liger_kernel
