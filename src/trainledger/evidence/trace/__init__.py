"""The trace: real PyTorch code runs on tensors without storage, and every birth and death of a storage is written down.

`record` and `lines` are plain data, `runner` starts a process of its own; the modules of `live` need torch.
"""
