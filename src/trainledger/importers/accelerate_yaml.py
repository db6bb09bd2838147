"""accelerate's configuration file, and the same settings as options of `accelerate launch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainledger.facts.import_accelerate import ACCELERATE_KEYS, SECTIONS, ZERO_STAGE
from trainledger.facts.import_rows import CERTAIN
from trainledger.importers.arguments import Arguments
from trainledger.importers.deepspeed_json import ON as DEEPSPEED
from trainledger.importers.deepspeed_json import STAGES
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.hf_fsdp import fsdp_keys
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.piece import AUTO, Given, Piece
from trainledger.plan.text import shown

Where = Callable[[str], str]
ON = "accelerate.on"  # the fact that accelerate runs
_MIXED = ("no", "bf16", "fp16")
_ALONE = ("NO", "MULTI_GPU")
_SHARDED = ("FSDP", "DEEPSPEED")
_ELSEWHERE = ("MULTI_CPU", "MULTI_XPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_HPU", "XLA", "TPU")


def identify(given: Input) -> float:
    """Certain where its own keys stand."""
    return CERTAIN if {"distributed_type", "compute_environment"} & set(given.data) else 0


def extract(given: Input, context: Context) -> Piece:
    """What the file says."""
    piece = Piece("accelerate configuration", given.name)
    keyed = Keyed(given.document or Document({}, {}), ACCELERATE_KEYS, piece)
    read_config(piece, {name: Given(value, keyed.where(name)) for name, value in keyed.data().items()}, keyed.where)
    keyed.finish()
    return piece


def read_config(piece: Piece, given: Mapping[str, Given], where: Where) -> None:
    """Read accelerate's settings, nested as its file has them, into the piece."""
    args = Arguments(given, piece)
    sections = {name: _section(args, name, where) for name in SECTIONS}
    piece.facts[ON] = Given(True, args.where("distributed_type"))
    _ranks(args)
    _mixed(args)
    backend = args.text("dynamo_backend") or args.below("dynamo_config").text("dynamo_backend")
    if backend and backend.upper() != "NO":
        piece.give("stack.compile", True, args.where("dynamo_backend", "dynamo_config"))
    raw = "NO" if args.raw("distributed_type") is False else args.text("distributed_type")  # as with mixed_precision
    kind = (raw or "").upper().removeprefix("DISTRIBUTEDTYPE.")
    if kind == "MEGATRON_LM" or args.mapping("megatron_lm_config"):
        fix = "Give Megatron-LM's own arguments, or a plan with framework megatron."
        found = "Megatron-LM under accelerate"
        place = args.where("megatron_lm_config", "distributed_type")
        piece.refuse("distributed_type", found, "it has no rule", fix, place)
    elif kind in _ELSEWHERE:
        allowed = f"one of {', '.join((*_ALONE, *_SHARDED))} can be estimated"
        piece.refuse("distributed_type", f"found {kind}", allowed, where=args.where("distributed_type"))
    elif kind == "FSDP" or (not kind and sections["fsdp_config"].given):
        fsdp_keys(sections["fsdp_config"], args.where("distributed_type", "fsdp_config"))
    elif kind == "DEEPSPEED" or (not kind and sections["deepspeed_config"].given):
        _deepspeed(sections["deepspeed_config"], args.where("distributed_type", "deepspeed_config"))
    elif kind == "MULTI_GPU":
        piece.facts["launch.ddp"] = Given(True, args.where("distributed_type"))
    elif kind not in ("", "NO"):
        allowed = f"one of {', '.join((*_ALONE, *_SHARDED))} is needed"
        piece.refuse("distributed_type", f"found {kind!r}", allowed, where=args.where("distributed_type"))
    mesh_keys(sections["parallelism_config"])


def _section(args: Arguments, name: str, where: Where) -> Arguments:
    """A section's settings, without the prefix that some have."""
    inner = args.below(name)
    prefix = "parallelism_config_" if name == "parallelism_config" else "fsdp_" if name == "fsdp_config" else ""
    placed = {key: Given(one.value, where(f"{name}.{key}") or one.where) for key, one in inner.given.items()}
    return Arguments({key.removeprefix(prefix): one for key, one in placed.items()}, args.piece)


def _ranks(args: Arguments) -> None:
    piece, world = args.piece, args.whole("num_processes", least=1)
    machines = args.whole("num_machines", least=1)
    if world is not None:
        piece.give("parallel.world", world, args.where("num_processes"))
        nodes = machines or 1
        if nodes and not world % nodes:
            piece.facts["launch.per_node"] = Given(world // nodes, args.where("num_machines", "num_processes"))
    steps = args.whole("gradient_accumulation_steps", least=1)
    if steps is not None:
        piece.facts["accelerate.steps"] = Given(steps, args.where("gradient_accumulation_steps"))


def _mixed(args: Arguments) -> None:
    raw = args.raw("mixed_precision")
    word = "no" if raw is False else str(raw).lower() if raw is not None else ""  # YAML takes a bare no for false
    if word in _MIXED:
        args.piece.facts["accelerate.mixed_precision"] = Given(word, args.where("mixed_precision"))
    elif word:
        allowed = "no, bf16 or fp16 can be estimated"
        args.piece.refuse("mixed_precision", f"found {shown(raw)}", allowed, where=args.where("mixed_precision"))


def _deepspeed(inner: Arguments, where: str) -> None:
    """The plugin's own settings, or the file that it names, beside which they do not count."""
    piece = inner.piece
    path = inner.text("deepspeed_config_file")
    init = inner.flag("zero3_init_flag")
    if init is not None:
        piece.facts["deepspeed.init"] = Given(init, inner.where("zero3_init_flag"))
    if path:
        piece.files.append((path, inner.where("deepspeed_config_file")))
        return
    stage = inner.whole("zero_stage")
    place = inner.where("zero_stage") or where
    stage = int(str(ZERO_STAGE.value)) if stage is None else stage
    if stage not in STAGES:
        piece.refuse("zero_stage", f"found {stage}", "a stage of 0 to 3 is needed", where=place)
        return
    piece.facts[DEEPSPEED] = Given(True, where)
    piece.facts["deepspeed.stage"] = Given(stage, place)
    piece.facts["deepspeed.clip"] = Given(AUTO, where)
    for name in ("bf16", "fp16"):
        piece.facts[f"deepspeed.auto.{name}.enabled"] = Given(AUTO, where)
    piece.give("parallel.strategy", STAGES[stage], place)
    if not stage:
        piece.give("parallel.options.stage", 0, place)
    for part, name in (("optimizer", "offload_optimizer_device"), ("params", "offload_param_device")):
        word = inner.text(name)
        if word in ("cpu", "nvme"):
            piece.give(f"offload.{part}", word, inner.where(name))
    clip = inner.number("gradient_clipping")
    if clip is not None:
        piece.give("optimizer.grad_clip", float(clip) if clip > 0 else None, inner.where("gradient_clipping"))
        piece.facts["deepspeed.clip"] = Given(clip, inner.where("gradient_clipping"))
    if (steps := inner.whole("gradient_accumulation_steps", least=1)) is not None:
        piece.facts["accelerate.steps"] = Given(steps, inner.where("gradient_accumulation_steps"))
    if inner.flag("zero3_save_16bit_model"):
        option = "parallel.options.stage3_gather_16bit_weights_on_model_save"
        piece.give(option, True, inner.where("zero3_save_16bit_model"))


def mesh_keys(inner: Arguments) -> None:
    """A mesh of ranks (`parallelism_config`): replicas, shards, tensor, context and sequence parallelism."""
    sizes = {name: inner.whole(f"{name}_size", least=1) for name in ("dp_replicate", "dp_shard", "tp", "cp", "sp")}
    piece = inner.piece
    for name, fact in (("dp_shard", "shard"), ("dp_replicate", "replicate")):
        if sizes[name] is not None:
            piece.facts[f"parallelism.{fact}"] = Given(sizes[name], inner.where(f"{name}_size"))
    for name in ("tp", "cp"):
        if (sizes[name] or 1) > 1:
            piece.give(f"parallel.{name}", sizes[name], inner.where(f"{name}_size"))
    if (sizes["sp"] or 1) > 1:
        piece.give("parallel.cp", sizes["sp"], inner.where("sp_size"))
        piece.give("parallel.options.cp_comm_type", "ulysses", inner.where("sp_size"))
