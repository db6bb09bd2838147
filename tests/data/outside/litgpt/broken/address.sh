litgpt finetune_lora microsoft/phi-2 --config https://raw.githubusercontent.com/Lightning-AI/litgpt/main/config_hub/finetune/phi-2/lora.yaml
