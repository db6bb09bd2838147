"""Megatron's arguments to how a plan runs: precision, optimizer, batch, recomputation, stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainledger.facts.import_megatron import OPTIONS, SAVED, SAVES, TURNED_OFF
from trainledger.facts.options import Kind, find_option
from trainledger.importers.piece import Piece
from trainledger.importers.settings import Settings
from trainledger.importers.yaml_text import scalar

DTYPES = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}
OPTIMIZERS = {"sgd": "sgd-momentum", "muon": "muon", "dist_muon": "muon", "adaptive_muon": "muon", "lion": "lion",
              "soap": "soap"}  # fmt: skip
FUSED = ("adam", "sgd")
BACKENDS = {"auto": "fused", "fused": "fused", "flash": "flash", "unfused": "unfused", "local": "unfused"}
ENGINES = {"transformer_engine": "te", "local": "local", "inference_optimized": "te"}
CORE = "core_attn"


def give_precision(given: Settings, piece: Piece) -> None:
    """Weights, gradients, master weights, 8-bit products."""
    name = next((one for one in ("--bf16", "--fp16") if given.has(one)), "")
    where = given.where(name) if name else f"{piece.name} (neither --bf16 nor --fp16)"
    if given.has("--bf16") and given.has("--fp16"):
        given.refuse_name("--bf16", "given beside --fp16", "one of them is needed")
    base = name.removeprefix("--") or "fp32"
    gradients, reason = _gradients(given, base)
    for key in ("gradients", "reduce"):
        piece.give(f"precision.{key}", gradients, given.where(reason) if reason else where)
    master = (
        None if base == "fp32" else (given.choice("--main-params-dtype", DTYPES) if _aware(given) else None) or "fp32"
    )
    piece.give("precision.master", master, where)
    if base == "fp16":
        piece.give("precision.grad_scaler", True, where)
    quantised = _eight_bits(given, piece, where)
    piece.give("precision.compute", quantised or base, where)
    held = "fp8" if quantised == "fp8" and given.has("--fp8-param-gather") else base
    piece.give("precision.weights", held, given.where("--fp8-param-gather") if held == "fp8" else where)


def _gradients(given: Settings, base: str) -> tuple[str, str]:
    """The dtype in which gradients are added up and reduced, and the argument that says so."""
    if base == "bf16" and given.has("--grad-reduce-in-bf16"):
        return "bf16", "--grad-reduce-in-bf16"
    if given.has("--accumulate-allreduce-grads-in-fp32"):
        return "fp32", "--accumulate-allreduce-grads-in-fp32"
    if base == "bf16" and _aware(given) and given.choice("--main-grads-dtype", DTYPES) == "bf16":
        return "bf16", "--main-grads-dtype"
    return ("fp16" if base == "fp16" else "fp32"), ""


def _aware(given: Settings) -> bool:
    return given.has("--use-precision-aware-optimizer")


def _eight_bits(given: Settings, piece: Piece, where: str) -> str:
    """fp8 or nvfp4 where products run in them; their settings as keys."""
    if given.has("--fp4-format"):
        piece.give("precision.fp8.recipe", "nvfp4", given.where("--fp4-format"))
        return "nvfp4"
    kinds = {"--fp8-format": given.text("--fp8-format"), "--fp8-hybrid": "hybrid", "--fp8-e4m3": "e4m3"}
    name = next((one for one in kinds if given.has(one)), "")
    if not name:
        return ""
    recipe = given.text("--fp8-recipe") if given.has("--fp8-recipe") else None
    piece.give("precision.fp8.format", kinds[name], given.where(name))
    piece.give("precision.fp8.recipe", recipe or "delayed", given.where("--fp8-recipe") if recipe else where)
    piece.give("precision.fp8.param_gather", given.has("--fp8-param-gather"), given.where("--fp8-param-gather"))
    return "mxfp8" if recipe == "mxfp8" else "fp8"


def give_optimizer(given: Settings, piece: Piece) -> None:
    """The optimizer, its states' dtypes, where they are, and clipping."""
    kind = (given.text("--optimizer") if given.has("--optimizer") else None) or "adam"
    if given.has("--optimizer"):
        given.give("optimizer.name", OPTIMIZERS.get(kind, kind), "--optimizer")
        given.give("optimizer.implementation", "apex-fused" if kind in FUSED else None, "--optimizer")
        if kind not in FUSED:
            piece.give("optimizer.implementation", None, given.where("--optimizer"))
    if given.values.get("--clip-grad") is not None:
        piece.give("optimizer.grad_clip", given.number("--clip-grad") or None, given.where("--clip-grad"))
    if _aware(given):
        aware = "--use-precision-aware-optimizer"
        given.give("parallel.options.use_precision_aware_optimizer", True, aware)
        for name, state in (("--exp-avg-dtype", "first"), ("--exp-avg-sq-dtype", "second")):
            if given.has(name):
                given.give(f"optimizer.states.{state}", given.choice(name, DTYPES), name)
    if given.has("--optimizer-cpu-offload"):
        given.give("offload.optimizer", "cpu", "--optimizer-cpu-offload")


def give_batch(given: Settings, piece: Piece) -> None:
    """Sequences and tokens."""
    sequence = next((one for one in ("--seq-length", "--encoder-seq-length") if given.has(one)), "--seq-length")
    for name, path, fix in (
        (
            "--micro-batch-size",
            "batch.micro_batch",
            "--batch-size is its old name" if given.has("--batch-size") else "",
        ),
        (sequence, "batch.sequence", ""),
    ):
        if given.said(name):
            given.give(path, given.whole(name), name)
        else:
            piece.refuse(name, "missing", "every run needs it", fix, piece.name)
    if given.said("--global-batch-size"):
        given.give("batch.global", given.whole("--global-batch-size"), "--global-batch-size")
    if given.has("--sft"):
        given.give("task", "sft", "--sft")


def give_recompute(given: Settings, piece: Piece) -> None:
    """What runs again in backward."""
    for name in ("--checkpoint-activations", "--activations-checkpoint-method"):
        if given.has(name):
            fix = "Write --recompute-granularity full --recompute-method uniform --recompute-num-layers 1."
            given.refuse_name(name, "an argument that Megatron-LM no longer has", "--recompute-* say it", fix)
    kind, said = _granularity(given)
    modules = given.texts("--recompute-modules")
    if given.has("--moe-layer-recompute"):
        said = said if kind else "--moe-layer-recompute"
        kind, modules = kind or "selective", [*(modules or ([CORE] if kind else [])), "moe"]
    if kind == "full":
        _whole_layers(given, said)
    elif kind:
        piece.give("stack.recompute.kind", kind, given.where(said))
        piece.give(
            "stack.recompute.modules", modules or [CORE], given.where("--recompute-modules" if modules else said)
        )


def _whole_layers(given: Settings, said: str) -> None:
    """Whole layers: all in groups, or the first ones of a stage, of which there may be none."""
    method, number = "--recompute-method", "--recompute-num-layers"
    for name in (method, number):
        if given.values.get(name) is None:
            given.refuse_name(name, f"missing beside {said} full", "Megatron-Core needs it")
    kind = given.choice(method, {"uniform": "uniform", "block": "block"}) if given.has(method) else None
    count = given.whole(number, 0 if kind == "block" else 1) if given.values.get(number) is not None else None
    given.give("stack.recompute.kind", "none" if count == 0 else "full", said)
    if count:
        given.give("stack.recompute.method", kind, method)
        given.give("stack.recompute.num_layers", count, number)


def _granularity(given: Settings) -> tuple[str, str]:
    if given.has("--recompute-granularity"):
        found = given.choice("--recompute-granularity", {"full": "full", "selective": "selective"})
        return found or "", "--recompute-granularity"
    return ("selective", "--recompute-activations") if given.has("--recompute-activations") else ("", "")


def give_stack(given: Settings, piece: Piece, env: Mapping[str, tuple[str, str]]) -> None:
    """Attention, loss, layers' implementation, offloaded activations, variables (value and place by name)."""
    piece.give("stack.framework", "megatron", piece.name)
    local = False
    if given.has("--transformer-impl"):
        engine = given.choice("--transformer-impl", ENGINES)
        local = engine == "local"
        given.give("stack.kernels", ["te"] if engine == "te" else [], "--transformer-impl")
        if local:
            given.give("stack.options.transformer_impl", "local", "--transformer-impl")
    _attention(given, piece, env, local)
    if given.has("--cross-entropy-loss-fusion"):
        name = "--cross-entropy-fusion-impl"
        kind = given.choice(name, {"native": "fused", "te": "te"}) if given.has(name) else "fused"
        given.give("stack.loss", f"vocab-parallel-{kind}", name if given.has(name) else "--cross-entropy-loss-fusion")
    for name in ("--fine-grained-activation-offloading", "--cpu-offloading-num-layers"):
        if given.has(name) and given.values.get(name) != "0":
            given.give("offload.activations", "cpu", name)
    if given.has("--fine-grained-activation-offloading"):
        given.give("stack.options.fine_grained_activation_offloading", True, "--fine-grained-activation-offloading")
    if given.has("--cpu-offloading-num-layers"):
        given.give(
            "stack.options.cpu_offloading_num_layers",
            given.whole("--cpu-offloading-num-layers"),
            "--cpu-offloading-num-layers",
        )
    for name, (value, where) in env.items():
        if find_option("stack.env", name) is not None:
            piece.give(f"stack.env.{name}", value, where)


def _attention(given: Settings, piece: Piece, env: Mapping[str, tuple[str, str]], local: bool) -> None:
    """Which attention runs: the argument's word; without it the variables that Transformer Engine reads."""
    name = "--attention-backend"
    word = (given.text(name) if given.has(name) else None) or "auto"
    if local:
        piece.give("stack.attention", "unfused", given.where("--transformer-impl"))
    elif word != "auto":
        given.give("stack.attention", given.choice(name, BACKENDS), name)
    elif given.has("--use-flash-attn"):
        given.give("stack.attention", "flash", "--use-flash-attn")
    else:
        off = {one: env[one][1] for one in ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN") if env.get(one, ("", ""))[0] == "0"}
        if "NVTE_FUSED_ATTN" in off:
            piece.give("stack.attention", "unfused" if "NVTE_FLASH_ATTN" in off else "flash", off["NVTE_FUSED_ATTN"])


def give_options(given: Settings, piece: Piece) -> None:
    """Arguments that are options of the plan under their own names; those without a row there are listed."""
    for name, path in OPTIONS:
        if given.values.get(name) is None:
            continue
        row = find_option(*path.rsplit(".", 1))
        value = _as(given, name, row.kind) if row else None
        if value is not None and value is not False:
            piece.give(path, value, given.where(name))
    for name, path in TURNED_OFF.items():
        if given.has(name):
            piece.give(path, False, given.where(name))


def give_save(given: Settings, piece: Piece) -> None:
    """How checkpoints are written, where any are."""
    if not given.has("--save"):
        return
    if given.has("--ckpt-format") and (form := SAVED.get(given.text("--ckpt-format") or "")):
        piece.give("save.format", form, given.where("--ckpt-format"))
    for name, path, value in SAVES:
        if given.has(name):
            piece.give(path, value, given.where(name))


def _as(given: Settings, name: str, kind: Kind) -> Any:
    """A value as an option's kind has it."""
    value = given.values[name]
    if kind is Kind.BOOL:
        return given.has(name)
    if kind in (Kind.COUNT, Kind.AUTO):
        return given.whole(name, 0)
    if kind is Kind.NUMBER:
        return given.number(name)
    if kind is Kind.TEXTS:
        return given.texts(name) or None
    if kind is Kind.COUNTS:
        return [scalar(word) for word in given.texts(name)] or None
    if kind is Kind.TEXT:
        return given.text(name)
    return value
