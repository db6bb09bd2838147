"""Code and papers whose rules stand as program, not as rows: what lines and notes made by these rules name."""

from __future__ import annotations

from trainledger.base.sources import Source

AUTOGRAD = Source(
    "PyTorch autograd: what each operation saves and returns", "tools/autograd/derivatives.yaml", "v2.4 to v2.13"
)
ACCUMULATE = Source("PyTorch AccumulateGrad", "torch/csrc/autograd/functions/accumulate_grad.h", "v2.4 to v2.13")
MODELS = Source("Transformers model classes", "transformers/models/*/modeling_*.py", "5.24.0")
PLACED = Source("Transformers from_pretrained, device_map", "transformers/modeling_utils.py", "5.24.0")
MIXED_PRECISION = Source("Mixed Precision Training", "arXiv:1710.03740, section 3.1", "2017-10")
STAGES = Source("PyTorch", "torch/distributed/pipelining/stage.py", "v2.5 to v2.13")
INPUTS_FETCHED = Source(
    "Arctic training", "arctic_training/monkey_patches.py, CheckpointFunctionWithCPUOffload", "2025-06"
)
SEQUENCE_PARALLEL = Source(
    "Reducing Activation Recomputation in Large Transformer Models", "arXiv:2205.05198, section 4.2.2", "2022-05"
)
RECOMPUTE_METHOD = Source("Megatron-LM arguments, recompute_method", "megatron/training/arguments.py", "2026-08")
SERIALISED = Source("safetensors: a file's tensors are all turned to bytes", "safetensors/torch.py, save_file", "0.8.0")
OWN_NODE = Source("given by the user", "the plan's `node`")
