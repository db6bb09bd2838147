"""What a reader should know beside the numbers: warnings with their reason, and options that are not counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainledger.answer.bands import Peak
from trainledger.answer.notes_beyond import beyond_notes, beyond_uncounted, step_uncounted
from trainledger.answer.notes_megatron import megatron_notes
from trainledger.answer.notes_model import model_notes, towers_beside, towers_uncounted
from trainledger.answer.notes_preferences import critic_beside, losses_beside
from trainledger.answer.notes_targets import target_notes
from trainledger.answer.precision import warnings
from trainledger.base.units import format_size
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.deepspeed import ANY_LINEAR, DEEPSPEED
from trainledger.facts.device_rows import Device
from trainledger.facts.dtypes import DTYPES, FP32, INT8
from trainledger.facts.kernels import REFERENCE
from trainledger.facts.kernels_attention import WORDS, Kernel
from trainledger.facts.limits import SMALL
from trainledger.facts.optimizers_other import BNB_ROWS
from trainledger.facts.option_row import Effect
from trainledger.facts.options import find_option
from trainledger.facts.outputs import NO_CHECKPOINTS
from trainledger.facts.peft import INPUT_GRADIENTS, OWN_CHECKPOINTS
from trainledger.facts.preferences import SUFFIX
from trainledger.facts.quantization import BNB_INT8
from trainledger.facts.sharding import FSDP2, OFFLOAD, SIZE_WRAP
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import Change, holds
from trainledger.facts.torchtitan_days import known
from trainledger.ledger.losses import CHUNKED
from trainledger.ledger.rank import EAGER, runs_eager, trained_of
from trainledger.ledger.run import GATHERED, run_of
from trainledger.ledger.scoring import scoring_of
from trainledger.ledger.strategy import NO_WRAP, by_peft, fsdp_of, least_of, policy_of, waits
from trainledger.ledger.wrapping import by_size
from trainledger.model.counts import storages
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import ZERO
from trainledger.plan.schema import Plan

CODED = frozenset(row.name for row in BNB_ROWS if row.blocks is not None)  # optimizers with states in 8 bits
COMPILED = (TORCHTITAN, "torchtune")  # frameworks whose compiled layers and losses have rules
WHOLE = ".modules_to_save.default."


@dataclass(frozen=True, slots=True)
class Notes:
    """`warnings`, each with its reason, what is `uncounted`, each with the direction of the error, and what of that is
    so large that it is named `beside` the verdict."""

    warnings: tuple[str, ...]
    uncounted: tuple[str, ...]
    beside: tuple[str, ...] = ()


def notes_of(plan: Plan, model: Model, device: Device | None) -> Notes:
    """Every note on a plan."""
    return Notes(
        (
            *model_notes(plan, model),
            *target_notes(plan, model),
            *_precision(plan),
            *_attention(plan, model),
            *_zero(plan),
            *_fsdp(plan),
            *_by_size(plan, model),
            *_offload(plan),
            *_frozen(plan, model),
            *_copies(model),
            *megatron_notes(plan, model),
            *_device(device),
            *beyond_notes(plan),
        ),
        (
            *towers_uncounted(plan),
            *_titan(plan, model),
            *_compile(plan),
            *_options(plan),
            *_further(model),
            *_whole(plan),
            *step_uncounted(plan),
            *beyond_uncounted(plan),
        ),
        (*towers_beside(plan), *losses_beside(plan), *critic_beside(plan)),
    )


def _precision(plan: Plan) -> Iterator[str]:
    precision = plan.precision
    master = DTYPES[precision.master] if precision.master else None
    for warning in warnings(DTYPES[precision.weights], master):
        yield f"precision: {warning.reason} ({warning.source})"


def _attention(plan: Plan, model: Model) -> Iterator[str]:
    if plan.stack.attention != EAGER and runs_eager(plan, model):
        yield f"stack.attention: {plan.stack.attention} has no cap on scores, so {model.family} runs eager attention"


def _zero(plan: Plan) -> Iterator[str]:
    strategy, ranks = plan.parallel.strategy, degrees(plan).shard
    if strategy not in ZERO:
        return
    states = "master weights and optimizer states"
    what = {"zero1": states, "zero2": f"{states}, and the gradients that these need,"}
    divided = what.get(strategy, "all model states")
    shared = degrees(plan).cp > 1 or degrees(plan).tp > 1
    left = "not divided by it" if shared else "whole on every rank"
    yield (
        f"parallel.strategy: {strategy} divides {divided} by {ranks:,}; activations, logits and what the loss makes of "
        f"them are {left}"
    )
    if strategy != "zero3" and plan.stack.framework != LOW_LEVEL.framework:  # which cuts every parameter evenly
        differ = "ranks differ by where their part begins; the fullest and the emptiest are listed"
        yield f"parallel.strategy: under {strategy} {differ}"
    if plan.offload.optimizer == "nvme" and strategy != "zero3":
        yield f"offload.optimizer: {strategy} keeps in the host's memory what is sent to NVMe ({DEEPSPEED.source})"
    if plan.stack.framework == "transformers":
        yield (
            "optimizer: one group of parameters, as where DeepSpeed's configuration names the optimizer; the Trainer's "
            f"own has two, which keeps gradients a little longer ({DEEPSPEED.source})"
        )


def _fsdp(plan: Plan) -> Iterator[str]:
    if plan.parallel.strategy not in GATHERED:
        return
    if by_peft(plan) and policy_of(plan) in (NO_WRAP, SIZE_WRAP.name):
        yield (
            f"parallel.options.auto_wrap_policy: the Trainer puts PEFT's own in the place of {policy_of(plan)}: it "
            f"wraps layers, and what is trained apart ({SIZE_WRAP.source})"
        )
    elif policy_of(plan) == NO_WRAP or least_of(plan) == 0:
        yield (
            f"parallel.options.auto_wrap_policy: {policy_of(plan)} makes the model one unit: all of it is gathered for "
            "a whole step, and its gradients are whole before they are reduced; wrap its layers to gather one at a "
            f"time ({FSDP2.source})"
        )
    if plan.batch.accumulation > 1 and waits(plan):
        yield (
            "batch.accumulation: gradients are reduced in the last micro-batch only, so that until then every rank "
            "holds them whole; parallel.options: {no_sync: false} reduces each micro-batch's"
        )


def _by_size(plan: Plan, model: Model) -> Iterator[str]:
    """Where wrapping by size leaves most of the model together."""
    least, path = least_of(plan), f"parallel.options.{SIZE_WRAP.option}"
    if least is None and SIZE_WRAP.option in plan.parallel.options and not by_peft(plan):
        yield f"{path}: only auto_wrap_policy: {SIZE_WRAP.name} reads it ({SIZE_WRAP.source})"
    if not least:
        return
    units = by_size(model, least)
    sizes = {unit: sum(one.weight.elements for one in unit.members) for unit in units.every()}
    total = sum(sizes[unit] for unit in units.every())
    together = [unit for unit in (units.root, *(units.unit(key) for key in units.around)) if unit]
    most = max(together, key=lambda unit: sizes[unit], default=None)
    if most and sizes[most] > total - sizes[most]:
        yield (
            f"{path}: with {least:,} {most.name} is a unit of {sizes[most]:,} of {total:,} weights, all gathered at "
            f"once for a whole step; lower it, or wrap by layers ({SIZE_WRAP.source})"
        )


def states_note(plan: Plan, states: int, peak: Peak) -> Iterator[str]:
    """Where states in 8 bits (`states` bytes) save little of the peak, though that is what they are chosen for."""
    codes, full = INT8.bytes_of(1), FP32.bytes_of(1)
    if plan.optimizer.name not in CODED or not states:
        return
    saved = states * (full - codes) // codes
    if saved < SMALL.share * peak.allocated.expected:
        yield (
            f"optimizer.name: 8-bit states save about {format_size(saved)} here; the peak, "
            f"{format_size(peak.allocated.expected)} at {peak.moment}, is made of other things"
        )


def _offload(plan: Plan) -> Iterator[str]:
    if fsdp_of(plan) and plan.offload.params and not plan.offload.optimizer:
        yield f"offload.params: FSDP's optimizer steps on the host too, where its states lie ({OFFLOAD.source})"


def _whole(plan: Plan) -> Iterator[str]:
    """Models built outside zero.Init, where the plan does not say whether this one is."""
    version = plan.stack.versions.get("deepspeed", "")
    given = plan.parallel
    if given.strategy != "zero3" or "zero_init" in given.options:
        return
    if not ANY_LINEAR.holds(version) and plan.stack.recompute.kind == "none":
        yield (
            f"stack.versions.deepspeed: before {ANY_LINEAR.release} a model that was built whole keeps every gathered "
            "weight from forward to backward: the ledger may be too low; say so with parallel.options: {zero_init: "
            f"false}} ({ANY_LINEAR.source})"
        )


def _frozen(plan: Plan, model: Model) -> Iterator[str]:
    """Where recompute does not do what it is asked for: a release that has none, nothing trained before the layers."""
    given = plan.stack.recompute
    if given.kind != "full":
        return
    if NO_CHECKPOINTS.holds(model.family, plan.stack.versions.get("transformers")):
        yield f"stack.recompute: {model.family} of that release never recomputes a layer ({NO_CHECKPOINTS.source})"
        return
    asks, own = run_of(plan, REFERENCE).asks_inputs(model), plan.stack.versions.get(OWN_CHECKPOINTS.package)
    if given.reentrant and not asks and not own and not _embeds(plan, model):
        yield (
            "stack.recompute: with reentrance a layer whose input needs no gradient is left without one; call "
            f"enable_input_require_grads, or nothing is trained ({INPUT_GRADIENTS.source})"
        )
    if asks and _starts_frozen(model) and not _embeds(plan, model):
        yield (
            "stack.recompute: it makes the embedding's rows need a gradient, so that frozen layers below the first "
            f"trained one keep their inputs and run backward too ({INPUT_GRADIENTS.source})"
        )
    if not given.reentrant and plan.quantization is not None and plan.quantization.kind == "int8":
        yield (
            "stack.recompute: LLM.int8() layers hold their inputs as attributes, which a checkpoint without reentrance "
            f"does not drop; with reentrance it does ({BNB_INT8.source})"
        )


def _starts_frozen(model: Model) -> bool:
    """Whether a plan that trains some modules by name leaves the first layer as it is."""
    return any(0 in block.layers and all(weight.frozen for weight in block.weights) for block in model.blocks)


def _embeds(plan: Plan, model: Model) -> bool:
    """Whether something before the layers is trained."""
    trained = trained_of(plan)
    return any(trained(weight) for weight in model.embeddings)


def _copies(model: Model) -> Iterator[str]:
    """Modules that an adapter trains whole stay twice."""
    names = {weight.name for _, weight in storages(model) if weight.tuned and WHOLE in weight.name}
    for module in sorted({name.partition(WHOLE)[0] for name in names}):
        yield f"adapter.train_extra: {module} stays, frozen, beside the copy that is trained"


def _titan(plan: Plan, model: Model) -> Iterator[str]:
    version = plan.stack.versions.get(TORCHTITAN, "")
    if plan.stack.framework != TORCHTITAN:
        return
    if not known(version):
        yield f"stack.versions.torchtitan: {version!r} is no release or commit that is known; counted as the newest"
    if holds(Change.FLEX, version) and WORDS[plan.stack.attention].kernels != (Kernel.FLEX,):
        yield f"stack.attention: {plan.stack.attention} is counted, where this version runs flex attention: low or high"
    if plan.stack.loss == CHUNKED and holds(Change.CHUNKED_HEAD, version):
        yield "stack.loss: chunks of logits are counted, where head and loss run chunk by chunk: high"
    if any(block.top_k for block in model.blocks):
        yield "model: experts' results are counted as added up through a sort, of which PyTorch may need less: high"


def _compile(plan: Plan) -> Iterator[str]:
    if plan.stack.framework in COMPILED:
        if plan.stack.compile:
            yield "stack.compile: counted as Inductor splits and joins a layer; what kernels try out at first is not"
    elif plan.stack.compile:
        yield "stack.compile: counted as eager; compiled code saves and makes other tensors: too high or too low"


def _options(plan: Plan) -> Iterator[str]:
    places = {
        "stack.options": plan.stack.options,
        "stack.env": plan.stack.env,
        "stack.allocator": plan.stack.allocator,
        "parallel.options": plan.parallel.options,
        "optimizer.options": plan.optimizer.options,
        "adapter.options": plan.adapter.options if plan.adapter else {},
    }
    for place, options in places.items():
        for name in options:
            row = find_option(place, name)
            if name == SUFFIX and scoring_of(plan).kept:  # counted where the plan says which tokens count
                continue
            if row is not None and row.effect is Effect.NOT_COUNTED:
                yield f"{place}.{name}: {row.direction.value} ({row.source})"


def _further(model: Model) -> Iterator[str]:
    if any(not block.ops for block in model.further):
        yield "model: layers that predict further tokens are not made by Transformers' own class"


def _device(device: Device | None) -> Iterator[str]:
    if device is None:
        yield "device: none given; kernels of sm80 are assumed, and nothing is said about fitting"
    elif not device.architecture.startswith("sm"):
        yield f"device: no kernel rules for {device.architecture or 'its architecture'}; kernels of sm80 are assumed"
