"""Scripts as a user writes them, for `--script` and for the tests that run it."""

from __future__ import annotations

TEXT = """
import os
import torch


def pieces():
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    batch = (torch.randn(16, 64),)
    return model, batch, torch.optim.AdamW(model.parameters())


def step():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    x = torch.randn(32, 64)

    def one():
        loss = model(x).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return one


class Wrong(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x[:, :3])


def wrong():
    return torch.nn.Sequential(Wrong()), (torch.zeros(2, 4),), None


def crash():
    os.abort()


def slow():
    import time

    time.sleep(100)


def nothing():
    return 3
"""
