"""What the ledger needs to know of a run, read off a resolved plan."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.facts.dtypes import DTYPES, DType
from trainledger.ledger.rules import Setting
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Run:
    """The run of one rank: rules' setting, accumulation, recompute (`none`, `full`, `reentrant`), loss, switches."""

    setting: Setting
    accumulation: int
    recompute: str
    loss: str
    gradients: DType
    keeps_gradients: bool
    keeps_logits: bool
    batch_tensors: int

    @property
    def residual(self) -> DType:
        """The dtype of hidden states between blocks."""
        return self.setting.weights


def run_of(plan: Plan, architecture: str) -> Run:
    """The run of a plan whose keys are resolved, on a device of this architecture (`sm90`, ...)."""
    precision, stack = plan.precision, plan.stack
    weights = DTYPES[precision.weights]
    low = DTYPES[precision.compute] if precision.autocast else None
    options = stack.options
    setting = Setting(
        batch=plan.batch.micro_batch,
        sequence=plan.batch.sequence,
        attention="eager" if stack.attention in ("eager", "unfused") else "flash",
        weights=weights,
        norms=DTYPES[precision.norms] if precision.norms else weights,
        autocast=low,
        torch=stack.versions.get("torch", ""),
        architecture=architecture,
        fallback_kernels="TORCH_CUDNN_SDPA_DEPRIORITIZED" in stack.env,
    )
    kind = stack.recompute.kind
    return Run(
        setting=setting,
        accumulation=plan.batch.accumulation,
        recompute="reentrant" if kind == "full" and stack.recompute.reentrant else kind,
        loss=stack.loss or "full-fp32",
        gradients=DTYPES[precision.gradients],
        keeps_gradients=options.get("zero_grad_set_to_none") is False,
        keeps_logits=bool(options.get("keep_outputs", False)),
        batch_tensors=len(options.get("batch_tensors", ("input_ids",))),
    )
