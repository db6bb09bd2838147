tune run full_finetune_single_device --config tune-opt-table-ac.yaml optimizer_in_bwd=True
