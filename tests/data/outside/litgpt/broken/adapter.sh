litgpt finetune_adapter_v2 microsoft/phi-2 --train.max_seq_length 512
