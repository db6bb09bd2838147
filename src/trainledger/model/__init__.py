"""What is trained: weights, and each block's program of operations over named-dim tensors."""
