"""torchtitan's TOML of a plan, with the torchrun line that reads it."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import nearest
from trainledger.facts.import_torchtitan import AXES, FLOAT8, KEYS, MX, NAME, PLACES
from trainledger.facts.import_torchtitan_models import ATTENTIONS, MODELS
from trainledger.facts.import_torchtitan_words import (
    DEFAULTS,
    DTYPES,
    IMPLEMENTATIONS,
    MODULES,
    OPTIMIZERS,
    RECOMPUTES,
    SCHEDULES,
)
from trainledger.facts.torchtitan import COMPONENTS
from trainledger.importers.emit import ENV, LAUNCH, OWN, Lever, Line, Names, Said, Sheet, refuse, straight, word
from trainledger.importers.emit_hf import layers_of, variables
from trainledger.importers.emit_model import alike
from trainledger.importers.emit_sharding import torchrun
from trainledger.importers.emit_text import script, toml_file
from trainledger.plan.own_stages import LESS_FIRST, LESS_LAST, PARTS, POINTS

FRAMEWORK, SUFFIX = NAME, ".toml"
MESH = PLACES[0]
# torchtitan's own script asks for expandable segments: a plan without settings says that there are none.
PLAIN = Line(ENV, "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:False", "stack.allocator")
STRATEGIES = ("none", "ddp", "fsdp2", "hsdp")


def sheet(said: Said, names: Names) -> Sheet:
    """The settings. Raises InputError for what torchtitan does not run."""
    if said.get("parallel.strategy") not in STRATEGIES:
        raise refuse(said, "parallel.strategy", f"torchtitan runs one of {', '.join(STRATEGIES)}")
    if said.get("adapter.kind") is not None:
        raise refuse(said, "adapter.kind", "torchtitan trains no adapters")
    family, flavour = _model(said)
    lines = (
        *(variables(said) if said.below("stack.allocator") else (*variables(said), PLAIN)),
        Line(OWN, "model.name", family, "model"),
        *_batch(said),
        *_mesh(said),
        *_pipeline(said),
        *_precision(said),
        *_step(said),
        *_recompute(said),
        *_saves(said),
        *straight(KEYS, said, OWN),
        Line(LAUNCH, "torchrun", torchrun(said)),
    )
    return Sheet(lines, (_flavours(flavour), _losses(said)))


def _model(said: Said) -> tuple[str, str]:
    """The family and the flavour, in torchtitan's words. Raises InputError where it has no flavour of the shape."""
    keys = {key: value for key, value in said.plan.keys().items() if key != "name"}
    known = {name: row for name, row in MODELS.items() if row.keys and dict(row.keys) == keys}
    named = (word(MODELS, entry.name) for entry in alike(said))
    name = next(filter(None, named), None) or next(iter(known), "")
    if not name and not said.partial:
        near = nearest(str(said.plan.keys().get("name", "")).lower(), (row.value for row in MODELS.values()))
        fix = f"The nearest is {near}." if near else ""
        raise refuse(said, "model", "no flavour of torchtitan's has this shape", fix)
    family, _, flavour = name.partition("/")
    return family, flavour.upper() if flavour[:1].isdigit() and family != "gpt_oss" else flavour


def _flavours(flavour: str) -> Lever:
    """The flavour, alone or with the attention that its ending asks for."""
    endings = ("", *dict.fromkeys(word(ATTENTIONS, row.value) or "" for row in ATTENTIONS.values()))
    return tuple((Line(OWN, "model.flavor", f"{flavour}{ending}", "model"),) for ending in endings)


def _batch(said: Said) -> Iterator[Line]:
    """A pipeline's micro-batches are a rank's sequences; else a step's sequences say how many are accumulated."""
    micro, steps = said.whole("batch.micro_batch"), said.whole("batch.accumulation")
    piped = said.whole("parallel.pp") > 1
    local = micro * steps if piped else micro
    yield Line(OWN, "training.local_batch_size", local, "batch.micro_batch")
    yield Line(OWN, "training.seq_len", said.get("batch.sequence"), "batch.sequence")
    if piped:
        yield Line(OWN, f"{MESH}.pipeline_parallel_microbatch_size", micro, "batch.accumulation")
    elif steps > 1:
        whole = local * steps * said.whole("parallel.dp")
        yield Line(OWN, "training.global_batch_size", whole, "batch.accumulation")


def _mesh(said: Said) -> Iterator[Line]:
    strategy, dp, cp = said.get("parallel.strategy"), said.whole("parallel.dp"), said.whole("parallel.cp")
    shard = dp if strategy == "fsdp2" else 1
    if strategy == "hsdp":
        shard = said.whole("parallel.shard") // cp or 1
    yield Line(OWN, f"{MESH}.data_parallel_replicate_degree", dp // shard or 1, "parallel.strategy")
    yield Line(OWN, f"{MESH}.data_parallel_shard_degree", shard, "parallel.strategy")
    for key, axis in AXES:
        if said.whole(f"parallel.{axis}") > 1:
            yield Line(OWN, f"{MESH}.{key}_parallel_degree", said.whole(f"parallel.{axis}"), f"parallel.{axis}")
    if said.whole("parallel.ep") > 1 and said.get("parallel.etp"):
        yield Line(OWN, f"{MESH}.expert_tensor_parallel_degree", said.get("parallel.etp"), "parallel.etp")
    after = said.get("parallel.reshard_after_forward", True)
    last = bool(said.get("parallel.options.reshard_last_layer"))  # `always` has the last layer too
    if strategy in ("fsdp2", "hsdp") and (last or after != (said.whole("parallel.pp") == 1)):
        policy = "always" if after else "never"
        yield Line(OWN, f"{MESH}.fsdp_reshard_after_forward", policy, "parallel.reshard_after_forward")
    if said.whole("parallel.tp") > 1 and not said.get("parallel.sp"):
        yield Line(OWN, f"{MESH}.enable_sequence_parallel", False, "parallel.sp")
    if said.get("parallel.options.async_tp"):
        yield Line(OWN, f"{MESH}.enable_async_tensor_parallel", True, "parallel.options.async_tp")
    if said.get("offload.params"):
        yield Line(OWN, "training.enable_cpu_offload", True, "offload.params")


def _pipeline(said: Said) -> Iterator[Line]:
    if said.whole("parallel.pp") == 1:
        return
    schedule = said.get("parallel.schedule", "1f1b")
    row = next((row for row in SCHEDULES.values() if row.value == schedule), None)
    if row is None:
        raise refuse(said, "parallel.schedule", f"one of {', '.join(one.value for one in SCHEDULES.values())}")
    yield Line(OWN, f"{MESH}.pipeline_parallel_schedule", row.name, "parallel.schedule")
    chunks, options = said.whole("parallel.vpp"), said.plan.parallel.options
    for key in (POINTS, PARTS):
        if key in options:
            yield Line(OWN, f"{MESH}.{key}", options[key], f"parallel.options.{key}")
            return
    if chunks > 1 and chunks != row.keys.get("vpp"):
        edges = sum(options.get(key, DEFAULTS.edges) for key in (LESS_FIRST, LESS_LAST))
        layers, stages = int(said.plan.keys().get("num_hidden_layers", 0)) + edges, said.whole("parallel.pp") * chunks
        each = -(-layers // stages)
        if -(-layers // each) != stages:
            fix = f"Say the first layer of each stage in parallel.options.{POINTS}."
            raise refuse(
                said, "parallel.vpp", f"{each} layers a stage make {-(-layers // each)} of {stages} stages", fix
            )
        yield Line(OWN, f"{MESH}.pipeline_parallel_layers_per_stage", each, "parallel.vpp")


def _precision(said: Said) -> Iterator[Line]:
    compute = said.get("precision.compute")
    for key, path in (
        ("dtype", "precision.weights"),
        ("mixed_precision_param", "precision.compute"),
        ("mixed_precision_reduce", "precision.reduce"),
    ):
        if (name := word(DTYPES, said.get(path))) is not None:
            yield Line(OWN, f"training.{key}", name, path)
    recipe, low = said.get("precision.fp8.recipe"), {"fp8": FLOAT8, "mxfp8": MX}.get(str(compute))
    if low is None:
        return
    again = "precision.fp8.force_recompute_weight_in_bwd"
    section = low[-1] if said.get(again) else low[0]  # a key of the older section alone
    yield Line(OWN, "model.converters", [section], "precision.compute")
    if recipe and (low is MX or recipe != "tensorwise"):
        yield Line(OWN, f"{section}.recipe_name", recipe, "precision.fp8.recipe")
    if said.get("precision.fp8.all_gather"):
        yield Line(OWN, f"{section}.enable_fsdp_float8_all_gather", True, "precision.fp8.all_gather")
    if said.get(again):
        yield Line(OWN, f"{section}.force_recompute_fp8_weight_in_bwd", True, again)


def _step(said: Said) -> Iterator[Line]:
    name = word(OPTIMIZERS, said.get("optimizer.name"))
    if name is None:
        allowed = f"torchtitan has {', '.join(row.value for row in OPTIMIZERS.values())}"
        raise refuse(said, "optimizer.name", allowed)
    yield Line(OWN, "optimizer.name", name, "optimizer.name")
    if (how := word(IMPLEMENTATIONS, said.get("optimizer.implementation"))) is not None:
        yield Line(OWN, "optimizer.implementation", how, "optimizer.implementation")
    path = f"{COMPONENTS.section}.{COMPONENTS.key}"
    parts = said.get(f"stack.options.{path}")
    yield Line(OWN, "compile.enable", bool(said.get("stack.compile") or parts), "stack.compile")
    if parts:
        yield Line(OWN, path, list(parts), f"stack.options.{path}")


def _recompute(said: Said) -> Iterator[Line]:
    kind, path = said.get("stack.recompute.kind", "none"), "stack.recompute"
    yield Line(OWN, "activation_checkpoint.mode", word(RECOMPUTES, kind), path)
    if kind == "selective":
        yield Line(OWN, "activation_checkpoint.selective_ac_option", str(layers_of(said) or "op"), path)


def _saves(said: Said) -> Iterator[Line]:
    kept, meanwhile = said.get("save.limit"), said.get("save.asynchronous")
    if kept or meanwhile:
        yield Line(OWN, "checkpoint.enable", True, "save")
    if kept:
        yield Line(OWN, "checkpoint.keep_latest_k", kept, "save.limit")
    if meanwhile:
        yield Line(OWN, "checkpoint.async_mode", "async", "save.asynchronous")


def _losses(said: Said) -> Lever:
    """A loss on whole logits, where tensor parallelism would leave them in parts."""
    whole = said.get("stack.loss") in ("full-fp32", "full")
    on = whole and said.whole("parallel.tp") > 1
    return ((Line(OWN, f"{MESH}.disable_loss_parallel", True, "stack.loss"),) if on else (),)


def files(lines: tuple[Line, ...], names: Names, head: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The TOML, and the script."""
    yield names.main, toml_file([line for line in lines if line.part == OWN], head)
    launcher = next(line.value for line in lines if line.part == LAUNCH)
    command = f"{launcher} -m {MODULES[0]} --job.config_file {names.main}"
    yield names.script, script([line for line in lines if line.part == ENV], command, head)
