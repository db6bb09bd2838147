torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer \
  data.micro_batch_size_per_gpu=4 data.max_length=2048 data.train_batch_size=256 \
  model.partial_pretrain=Qwen/Qwen2.5-7B model.strategy=fsdp optim.lr=1e-5 trainer.n_gpus_per_node=8
