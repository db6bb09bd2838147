"""Which sub-groups' part of an offloaded optimizer stays on the device: `offload_optimizer.ratio` of ZeRO-3.

Source: deepspeed/runtime/zero/stage3.py (0.12.3 to 0.19.8): _create_fp32_partitions, initialize_optimizer_states,
_optimizer_step. ZeRO-1 and -2 do not read the setting.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.facts.deepspeed import SPLIT, SPLIT_FIRST, SPLIT_TORCH
from trainledger.ledger.step import Updates


def staying(count: int, ratio: float, version: str) -> range:
    """Numbers of those of `count` sub-groups whose master weights, gradients and states stay on the device, where
    `ratio` of them go to the host: the first ones, in older releases the last. Earlier ones know no ratio."""
    if not SPLIT.holds(version):
        return range(0)
    if SPLIT_FIRST.holds(version):
        return range(int((1 - ratio) * count))
    return range(int(ratio * count), count)


def on_device(updates: Updates, version: str) -> Updates:
    """The optimizer of what stays: torch's AdamW, in older releases DeepSpeed's own fused Adam."""
    name = "foreach" if SPLIT_TORCH.holds(version) else "apex-fused"
    return replace(updates, implementation=name, how=replace(updates.how, implementation=name))
