"""What the ledger needs to know of a run, read off a resolved plan."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.float8 import LOW
from trainledger.facts.fsdp_qlora import NAME as FSDP_QLORA
from trainledger.facts.kernel_sets import MULTIPROCESSORS, UNKNOWN_DEVICE, WHOLE_ADAPTERS, Multiprocessors
from trainledger.facts.kernels_attention import Kernel
from trainledger.facts.litgpt import NAME as LITGPT
from trainledger.facts.outputs import NO_CHECKPOINTS
from trainledger.facts.peft import INPUT_GRADIENTS, OWN_CHECKPOINTS
from trainledger.facts.preference_row import NAMED
from trainledger.facts.preferences import PAIR, PAIRED, REWARDED
from trainledger.facts.scope import OWN_MODELS
from trainledger.facts.sharding import FIRST
from trainledger.facts.torch_releases import ZEROED_GRADIENTS
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import OP, ORDERED, Change, holds
from trainledger.facts.torchtune import NAME as TORCHTUNE
from trainledger.facts.torchtune import Early, early
from trainledger.facts.trainer import DECAY_GROUPS, TRAINER_BATCH
from trainledger.facts.versions import at_least, parse_version
from trainledger.ledger.budgeted import budget_of
from trainledger.ledger.frame import Mixed, Setting
from trainledger.ledger.rows import Rows, hides, rows_of
from trainledger.ledger.scoring import Scoring, scoring_of, trainer_of
from trainledger.ledger.software import Software, kernels_of
from trainledger.lines.kernel_choice import level
from trainledger.model.counts import has_tuned
from trainledger.model.program import Model, Role
from trainledger.model.prompts import PROMPT_KINDS
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.running import Stack
from trainledger.plan.schema import Plan

NAMING = (LITGPT, FSDP_QLORA, LOW_LEVEL.framework)  # frameworks whose loops name the model's results
PLAIN_LOOPS = ("transformers", "torch")  # whose loops call zero_grad() and say no more
FLAT = ("fsdp1", "fsdp1-noshard")
GATHERED = ("fsdp1", "fsdp2", "hsdp", "fsdp1-noshard")  # strategies that gather weights before they are read
RETURNING = "ppo"  # the task whose trainer calls a function for each micro-batch


@dataclass(frozen=True, slots=True)
class Run:
    """The run of one rank: rules' setting, accumulation, recompute (`none`, `full`, `reentrant`; `selective`: of the
    named modules of each layer; of every so many layers one), what the loss is made of,
    switches. The setting's dtypes are those in which weights are read."""

    setting: Setting
    accumulation: int
    recompute: str
    scoring: Scoring
    gradients: DType
    keeps_gradients: bool
    keeps_logits: bool
    batch_tensors: int
    trainer: bool
    software: Software = field(default_factory=Software)
    modules: tuple[str, ...] = ()
    every: int = 1

    def recompute_of(self, layer: int) -> str:
        """How that layer is recomputed: where not all are, the last of every so many (layers are counted from 0)."""
        return "none" if (layer + 1) % self.every else self.recompute

    def undecayed(self, family: str) -> tuple[Role, ...]:
        """What the Trainer keeps in an optimizer group of its own, without decay; nothing where it is not the one that
        makes the optimizer."""
        releases = self.software.releases
        if not releases.get(TRAINER_BATCH.package):
            return ()
        known = at_least(releases.get("transformers"), DECAY_GROUPS.since) or family not in DECAY_GROUPS.unknown
        return (Role.BIAS, Role.NORM) if known else (Role.BIAS,)

    def asks_inputs(self, model: Model) -> bool:
        """Whether the embedding's rows are made to need a gradient: where layers are recomputed, by PEFT, and by
        Transformers itself from 5.0 on, unless a front end checkpoints by itself."""
        if self.recompute not in ("full", "reentrant") or self.software.framework in (*OWN_MODELS, LOW_LEVEL.framework):
            return False
        newer = at_least(self.setting.transformers or None, INPUT_GRADIENTS.since)
        return has_tuned(model) or (newer and not self.software.release(OWN_CHECKPOINTS.package))

    @property
    def detaches(self) -> bool:
        """Whether a step keeps the loss's value alone, so that nothing of the graph outlives backward: the Trainer, and
        a loop that is handed the mask of ones that a Trainer's collator makes."""
        return self.trainer or self.setting.rows is Rows.MASKED

    @property
    def alone(self) -> bool:
        """Whether only the first micro-batch is as long as the plan says: LitGPT's scripts before its first release,
        which plans name by a commit, fed the longest sample first and random ones from then on."""
        release = self.software.release(LITGPT) if self.software.framework == LITGPT else ""
        return bool(release) and parse_version(release) is None

    @property
    def forgets(self) -> bool:
        """Whether the loop lets go of loss and logits before the next forward."""
        return self.software.framework == FSDP_QLORA

    @property
    def loss(self) -> str:
        """The plan's word for the loss, or the task whose trainer makes it."""
        return self.scoring.loss

    @property
    def pairs(self) -> bool:
        """Whether a plain loop's script makes its loss over preferences of logits that it names."""
        return self.scoring.form == NAMED

    @property
    def returns(self) -> bool:
        """Whether a function of its own makes each loss, whose names end as it returns."""
        return self.pairs and self.loss == RETURNING

    @property
    def residual(self) -> DType:
        """The dtype of hidden states between blocks."""
        return self.setting.weights


def run_of(plan: Plan, architecture: str) -> Run:
    """The run of a plan whose keys are resolved, on a device of this architecture (`sm90`, ...)."""
    precision, stack = plan.precision, plan.stack
    weights = DTYPES[precision.weights]
    norms = DTYPES[precision.norms] if precision.norms else weights
    compute = products_of(plan)
    low = compute if precision.autocast else None
    gathered = plan.parallel.strategy in GATHERED
    options = stack.options
    setting = (Mixed if _norms(plan, norms) is None and mixes(plan) else Setting)(
        batch=plan.batch.micro_batch * (len(PAIR) if plan.task in (*PAIRED, REWARDED) else 1),
        sequence=plan.batch.sequence // plan.parallel.cp + _virtual(plan),
        attention=_attention(plan, architecture),
        weights=compute if gathered else weights,
        norms=_norms(plan, norms),
        autocast=low,
        torch=stack.versions.get("torch", ""),
        architecture=architecture,
        fallback_kernels="TORCH_CUDNN_SDPA_DEPRIORITIZED" in stack.env,
        transformers=stack.versions.get("transformers", ""),
        rows=rows_of(plan),
    )
    return Run(
        setting=setting,
        accumulation=plan.batch.accumulation,
        recompute=_recompute(plan),
        modules=stack.recompute.modules or (),
        every=every_of(stack.recompute.policy) or 1,
        scoring=scoring_of(plan),
        gradients=_gradients(plan),
        keeps_gradients=_zeroes(plan),
        keeps_logits=bool(options.get("keep_outputs", _names_logits(stack))),
        batch_tensors=_batch_tensors(plan),
        trainer=TRAINER_BATCH.package in stack.versions,
        software=_software(plan, architecture),
    )


def _zeroes(plan: Plan) -> bool:
    """Whether a step's gradients are set to zero after the update instead of let go: as said, or as older releases of
    PyTorch do by default; DeepSpeed's engine and shards have loops of their own."""
    said = plan.stack.options.get("zero_grad_set_to_none")
    if said is not None:
        return said is False
    loop = plan.parallel.strategy in ("none", "ddp") and not deepspeed_of(plan)
    return loop and plan.stack.framework in PLAIN_LOOPS and ZEROED_GRADIENTS.holds(plan.stack.versions.get("torch"))


def _attention(plan: Plan, architecture: str) -> str:
    """The word for attention by which its kernel is chosen: torchtitan's own order of kernels, where it has one."""
    stack, version = plan.stack, plan.stack.versions.get(TORCHTITAN, "")
    if stack.framework == TORCHTITAN and stack.attention in ("sdpa", None) and holds(Change.ORDERED_ATTENTION, version):
        everywhere = holds(Change.CUDNN_FIRST, version)
        return "cudnn-first" if everywhere or level(architecture) >= ORDERED.since else "flash-first"
    return Kernel.EAGER if stack.attention == "unfused" else stack.attention


def _names_logits(stack: Stack) -> bool:
    """Whether the caller's loop names the model's results until the next forward's end."""
    if stack.framework == TORCHTITAN:
        return not holds(Change.FREES_LOGITS, stack.versions.get(TORCHTITAN, ""))
    if stack.framework == TORCHTUNE:
        return early(Early.HOLDS, stack.versions.get(TORCHTUNE, ""))
    return stack.framework in NAMING


def _norms(plan: Plan, kept: DType) -> DType | None:
    """The dtype in which norms are read; None where all weights are read in one.

    FSDP2 gathers all weights of a layer in one, and so does FSDP1 under mixed precision; without it an adapter's are
    gathered in theirs, and those that it is told to ignore keep theirs.
    """
    if plan.parallel.strategy not in GATHERED:
        return kept
    first = plan.parallel.strategy in FLAT or plan.parallel.options.get("fsdp_version") == FIRST
    own = first and (whole_adapters(plan) or not mixes(plan))
    return products_of(plan) if own else None


def products_of(plan: Plan) -> DType:
    """The dtype that products read and weights are gathered in: 16 bits where products cast to 8 bits themselves."""
    return DTYPES[LOW[plan.precision.compute].reads if plan.precision.compute in LOW else plan.precision.compute]


def mixes(plan: Plan) -> bool:
    """Whether FSDP1 gathers all weights in the compute dtype."""
    return plan.precision.autocast or plan.precision.compute != plan.precision.weights


def whole_adapters(plan: Plan) -> bool:
    """Whether adapters are left out of what FSDP1 shards."""
    quantised = plan.adapter is not None and plan.quantization is not None
    first = plan.parallel.strategy in FLAT or plan.parallel.options.get("fsdp_version") == FIRST
    return quantised and first and WHOLE_ADAPTERS.kernels in plan.stack.kernels


def _gradients(plan: Plan) -> DType:
    """The dtype in which autograd leaves gradients; DeepSpeed's own wider ones are its wrappers' business."""
    precision = plan.precision
    if plan.parallel.strategy in GATHERED and not whole_adapters(plan):
        return products_of(plan)
    return DTYPES[precision.weights if deepspeed_of(plan) else precision.gradients]


_EVERY = re.compile(r"every (\d{1,4})(?:st|nd|rd|th)? layers?")


def every_of(policy: str | None) -> int:
    """n of the policy `every nth layer`; 0 for another policy or none."""
    match = _EVERY.fullmatch(policy.strip().lower()) if policy else None
    return int(match.group(1)) if match else 0


def _recompute(plan: Plan) -> str:
    """What is done with a layer that is recomputed: whole (with or without reentrance), or some of its modules."""
    given, release = plan.stack.recompute, plan.stack.versions.get("transformers")
    if NO_CHECKPOINTS.holds(plan.keys().get("model_type"), release):
        return "none"
    share = budget_of(given.policy) if given.kind == "selective" else None
    if given.kind == "selective" and given.policy and (given.policy == OP or share is not None):
        return "none" if share == 1 else given.policy
    if given.kind == "none" or (given.kind == "selective" and given.modules and not every_of(given.policy)):
        return given.kind
    return "reentrant" if given.reentrant else "full"


def _virtual(plan: Plan) -> int:
    """Tokens of a trained prompt before each sequence."""
    if plan.adapter is None or plan.adapter.kind not in PROMPT_KINDS:
        return 0
    return int(plan.adapter.options.get("num_virtual_tokens") or 0)


def _software(plan: Plan, architecture: str) -> Software:
    stack = plan.stack
    caches = stack.options.get("use_cache") is not False
    return Software(
        kernels_of(plan),
        dict(stack.versions),
        device=_multiprocessors(plan, architecture),
        caches=caches,
        framework=stack.framework,
        compiled=bool(stack.compile),
        offloads=plan.offload.activations is not None,
        experts=plan.parallel.ep,
        context=plan.parallel.cp,
        placed=bool(stack.options.get("device_map")),
    )


def _multiprocessors(plan: Plan, architecture: str) -> Multiprocessors:
    name = plan.device.name if plan.device else None
    return replace(MULTIPROCESSORS.get(name or "", UNKNOWN_DEVICE), architecture=architecture)


def _batch_tensors(plan: Plan) -> int:
    """How many tensors of tokens the step holds: as said, or as the Trainer has them, or ids that are labels too."""
    stack = plan.stack
    given = stack.options.get("batch_tensors")
    if given is not None:
        return len(given)
    if stack.framework in OWN_MODELS:
        return len(("ids", "labels"))
    row = trainer_of(plan)
    if plan.stack.framework == LOW_LEVEL.framework:
        return row.tensors if row else len(TRAINER_BATCH.tensors)
    if not stack.versions.get(TRAINER_BATCH.package):
        return len(("ids", "mask")) if hides(plan) else 1
    ahead = at_least(stack.versions.get("transformers"), TRAINER_BATCH.ahead)
    return (row.tensors if row else len(TRAINER_BATCH.tensors)) * (plan.batch.accumulation if ahead else 1)
