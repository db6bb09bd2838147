"""What a trace can run, by key of the plan, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source

SCOPE: dict[str, tuple[str | bool | None, ...]] = {
    "task": ("pretrain", "sft"),
    "stack.framework": ("transformers", "torch"),
    "stack.loss": ("full-fp32", None),  # Transformers' own losses raise logits to fp32
    "stack.compile": (False, None),
    "stack.attention": ("sdpa", "mem-efficient", "flash", "fused", "eager", "unfused", None),
    "stack.recompute.kind": ("none", "full", None),
    "parallel.strategy": ("none", "ddp", "fsdp2"),
    "precision.master": (None,),
    "precision.main_gradients": (None,),
    "optimizer.name": ("adamw", "adam", "sgd", "sgd-momentum", "adagrad", "rmsprop", "adafactor"),
}
# Keys that must be absent, and what they ask for.
REFUSED = {
    "quantization": "quantised weights",
    "offload.optimizer": "optimizer states elsewhere",
    "offload.params": "weights elsewhere",
    "offload.activations": "activations elsewhere",
    "offload.places": "lines in other places",
    "roles": "models that act beside the trained one",
    "stack.kernels": "fused kernel sets",
    "optimizer.in_backward": "a step in backward",
    "optimizer.states": "states of another dtype",
}
# Sections that a trace does not look at, and what that means.
UNSEEN = {
    "evaluation": "a trace runs the training's steps alone, so this is no moment; the ledger may be too low",
    "save": "a trace runs the training's steps alone, so this is no moment, and no disk is judged",
    "node": "a trace's verdict is of the device's memory alone",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a trace may take before it is stopped."""

    seconds: int
    source: Source


PATIENCE = Patience(
    600, Source("traces of large models take seconds; what takes this long hangs", "bench/bench_trace.py")
)


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The linear layer that is traced first: rows of its input, its width (elements)."""

    rows: int
    width: int
    source: Source


SELF_TEST = SelfTest(64, 32, Source("any small layer whose tensors differ in size", "evidence/trace/live/selftest.py"))
