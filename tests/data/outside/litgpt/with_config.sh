litgpt finetune_lora checkpoints/meta-llama/Llama-3.1-8B --config llama3_lora.yaml --devices 2 --train.micro_batch_size 4 --lora_key true --optimizer torch.optim.SGD
