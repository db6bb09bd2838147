"""What older releases of PyTorch keep or load that newer ones do not."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class Until:
    """Something that PyTorch did before the release `until`."""

    until: str
    source: Source

    def holds(self, torch: str | None) -> bool:
        """Whether that release does it; one that is not known counts as the newest."""
        return not at_least(torch, self.until)


SOFTMAX_INPUTS = Until(
    "1.11",
    Source(
        "PyTorch torch/csrc/autograd/generated/Functions.h",
        "SoftmaxBackward0 and LogSoftmaxBackward0 save self beside result",
        "1.10.2; result alone 1.11.0 to 2.13.0",
    ),
)
# primitives of which that holds
SOFTMAX = frozenset({"softmax", "log_softmax"})
ZEROED_GRADIENTS = Until(
    "2.0",
    Source(
        "PyTorch torch/optim/optimizer.py and torch/nn/modules/module.py",
        "zero_grad: set_to_none is False by default",
        "1.10.2 to 1.13.1; True from 2.0.0 on",
    ),
)
LOADED_WHOLE = Until(
    "1.13",
    Source(
        "PyTorch torch/cuda/__init__.py",
        "_lazy_init: CUDA_MODULE_LOADING is set to LAZY",
        "1.13.1; all kernels are loaded with the context 1.10.2 to 1.12.1",
    ),
)
