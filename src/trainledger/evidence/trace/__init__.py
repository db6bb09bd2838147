"""The trace: real PyTorch code runs on tensors without storage, and every birth and death of a storage is written down.

`record`, `lines` and `passes_of` are plain data; the other modules need torch (the extra `trace`).
"""
