"""What the ledger of Megatron-Core needs to know of a plan: its run, the rank's part of the model, its chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from trainledger.facts.megatron import QKV
from trainledger.facts.megatron_buffers import STANDS_IN, release_of
from trainledger.facts.megatron_offload import COUNT, LEAST, MODULES, OFFLOAD, OPTION
from trainledger.facts.phases import TASKS
from trainledger.facts.versions import at_least
from trainledger.ledger.frame import Setting
from trainledger.ledger.mega import Day, Fusions, Hosted, Mega, Scores
from trainledger.ledger.mega_choice import MADE, engine_of
from trainledger.ledger.mega_fp8 import own_dtype
from trainledger.ledger.mega_routing import routing_of
from trainledger.ledger.mega_scores import LOG_PROBS, WITH_ENTROPY
from trainledger.ledger.opening import Job
from trainledger.ledger.run import Run, run_of
from trainledger.ledger.scoring import Scoring
from trainledger.lines.parts import Parts
from trainledger.lines.pipeline import OVERLAP
from trainledger.plan.schema import Plan
from trainledger.plan.stages import Chunk as Place
from trainledger.plan.stages import split_of, stages

ENTROPY = "entropy_coeff"  # of a policy's loss: other than 0, the entropy is made in its update
CORE = "core_attn"  # what runs again where a plan does not say which modules do
RECOMPUTED, DELAYED = "recompute", "delay_wgrad_compute"


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one model chunk of a stage runs: numbers of its layers; whether the embedding comes before them, and the
    output layer with the loss after; how many layers that predict further tokens; whether the last norm; of how many
    further tokens it is given hidden states beside the model's own, by a stage before that has these layers."""

    layers: tuple[int, ...]
    first: bool
    last: bool
    further: int = 0
    normed: bool = False
    given: int = 0

    @property
    def closes(self) -> bool:
        """Whether something comes after its layers."""
        return self.last or self.normed or bool(self.further)

    @property
    def fed(self) -> bool:
        """Whether it is given the batch: its tokens, labels or mask."""
        return self.first or self.last or bool(self.further)

    @property
    def sends(self) -> int:
        """Of how many further tokens it hands on hidden states."""
        return self.given or self.further


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank's job, its stage's chunks, and what its plan says of the run; its numbers among the data-parallel ranks
    of dense weights and of experts (None: of the fullest)."""

    plan: Plan
    job: Job
    chunks: tuple[Chunk, ...]
    stage: int
    places: tuple[int, int] | None = None


def parts_of(plan: Plan) -> Parts:
    """Over how many ranks tensors are spread."""
    given = plan.parallel
    return Parts(given.tp, given.etp or given.tp, given.ep)


def mega_of(plan: Plan, architecture: str) -> Mega:
    """How Megatron runs this plan's layers on a device of this architecture."""
    options, parallel = plan.stack.options, plan.parallel

    def on(name: str, default: bool = True) -> bool:
        return bool(options.get(name, default and not options.get(f"no_{name}")))

    fusions = Fusions(
        activation=on("bias_activation_fusion", on("bias_swiglu_fusion") and on("bias_gelu_fusion")),
        dropout=on("bias_dropout_fusion"),
        softmax=on("masked_softmax_fusion"),
        rope=on("apply_rope_fusion", on("rope_fusion")),
        gradient=bool(parallel.options.get("gradient_accumulation_fusion", True)),
        compiled=on("jit_fuser"),
    )
    return Mega(
        parts_of(plan),
        parallel.sp and parallel.tp > 1,
        fusions,
        engine=engine_of(plan, architecture),
        scores=_scores(plan, on),
        spread=on("distribute_saved_activations", False),
        routing=routing_of(plan),
        hosted=_hosted(plan),
        away=int(options.get(COUNT) or 0),
        delayed=bool(parallel.options.get(OVERLAP) and parallel.options.get(DELAYED)),
        day=Day(
            anew=not STANDS_IN.holds(release_of(plan.stack.versions)),
            listed=at_least(release_of(plan.stack.versions) or None, QKV.listed),
        ),
    )


def _scores(plan: Plan, on: Callable[[str, bool], bool]) -> Scores:
    again, layered = plan.stack.recompute, on("apply_query_key_layer_scaling", False)
    return Scores(
        wide=on("attention_softmax_in_fp32", False) or layered,
        layered=layered,
        masked=on(MADE, False),
        apart=again.kind == "selective" and CORE in (again.modules or (CORE,)),
    )


def _hosted(plan: Plan) -> Hosted | None:
    options = plan.stack.options
    if not options.get(OPTION):
        return None
    ahead = bool(plan.parallel.options.get(OVERLAP))  # then another micro-batch goes forward first
    return Hosted(tuple(options.get(MODULES) or ()), int(options.get(LEAST) or OFFLOAD.least), not ahead)


def mega_run(plan: Plan, architecture: str) -> Run:
    """The run of one rank: the sequence is its part under context parallelism."""
    run = run_of(plan, architecture)
    sequence = plan.batch.sequence // plan.parallel.cp
    own = own_dtype(plan)
    norms = run.setting.norms if own == run.setting.weights else None
    setting: Setting = replace(run.setting, sequence=sequence, weights=own, norms=norms)
    scoring = run.scoring
    if plan.task in TASKS:
        scoring = Scoring(WITH_ENTROPY if plan.stack.options.get(ENTROPY) else LOG_PROBS)
    software = replace(run.software, mega=mega_of(plan, architecture))
    return replace(run, setting=setting, software=software, scoring=scoring)


def chunks_of(plan: Plan, layers: int, stage: int) -> tuple[Chunk, ...]:
    """The model chunks of a pipeline stage, in the order in which they run. Raises InputError for a split that the
    framework refuses."""
    further = int(plan.keys().get("num_nextn_predict_layers") or 0)
    found = stages(split_of(plan, layers, further))

    def given(one: Place) -> int:  # layers for further tokens stand together, in a chunk before it
        at = found.index(one)
        return further if not one.mtp and any(before.mtp for before in found[:at]) else 0

    def normed(one: Place) -> bool:  # with layers for further tokens the norm is where the decoder's last layer is
        return bool(one.layers) and one.first + one.layers == layers if further else one.loss

    def numbers(one: Place) -> tuple[int, ...]:
        return tuple(range(one.first, one.first + one.layers))

    return tuple(
        Chunk(numbers(one), one.embedding, one.loss, one.mtp, normed(one), given(one))
        for one in found
        if one.rank == stage
    )
