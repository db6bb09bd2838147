"""Megatron-LM's arguments of a plan, in the script that starts pretrain_gpt.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainledger.facts.import_megatron import FLAGGED, MODEL_ARGUMENTS, OPTIONS, SAVED, SAVES, TURNED_OFF
from trainledger.facts.megatron import FAMILY
from trainledger.importers.emit import ARGS, ENV, LAUNCH, Lever, Line, Names, Said, Sheet, refuse, word
from trainledger.importers.emit_hf import variables
from trainledger.importers.emit_sharding import torchrun
from trainledger.importers.emit_text import script
from trainledger.importers.megatron import PROGRAM
from trainledger.importers.megatron_mesh import DEGREES, EMBEDDED, LAYOUT, STRATEGIES
from trainledger.importers.megatron_run import BACKENDS, DTYPES, OPTIMIZERS

FRAMEWORK, SUFFIX = "megatron", ".sh"
PLAIN = "megatron-ddp"  # the strategy that no argument asks for
ADAM = ("adam", "adamw")  # Megatron's adam decays weights as AdamW does
INSTANCES = "num_distributed_optimizer_instances"


def sheet(said: Said, names: Names) -> Sheet:
    """The arguments. Raises InputError for what Megatron-LM's GPT does not run."""
    if said.get("adapter.kind") is not None or said.get("quantization.kind") is not None:
        path = "adapter.kind" if said.get("adapter.kind") is not None else "quantization.kind"
        raise refuse(said, path, "pretrain_gpt.py trains whole weights")
    lines = (*_model(said), *_run(said), *_mesh(said), *_recompute(said), *_options(said), *_saves(said))
    return Sheet(
        (*variables(said), *lines, Line(LAUNCH, "torchrun", torchrun(said))), (_optimizer(said), _engine(said))
    )


def _model(said: Said) -> Iterator[Line]:
    keys = said.plan.keys()
    if keys.get("model_type") != FAMILY:
        raise refuse(said, "model.model_type", f"Megatron-LM's GPT ({FAMILY}), or a type that Megatron-Core builds")
    for name, key in MODEL_ARGUMENTS:
        if keys.get(key) is not None:
            yield Line(ARGS, name, keys[key], f"model.{key}")
    for name, wanted in FLAGGED:
        if all(keys.get(key) == value for key, value in wanted.items()):
            yield Line(ARGS, name, True, f"model.{next(iter(wanted))}")
    heads, groups = keys.get("num_attention_heads"), keys.get("num_key_value_heads")
    if groups not in (None, heads) and "kv_lora_rank" not in keys:
        yield Line(ARGS, "--group-query-attention", True, "model.num_key_value_heads")
        yield Line(ARGS, "--num-query-groups", groups, "model.num_key_value_heads")
    if keys.get("kv_lora_rank") is not None:
        yield Line(ARGS, "--multi-latent-attention", True, "model.kv_lora_rank")
    if (dense := keys.get("first_k_dense_replace")) and keys.get("num_experts"):
        layers = f"([0]*{dense}+[1]*{int(keys['num_hidden_layers']) - int(dense)})"
        yield Line(ARGS, "--moe-layer-freq", layers, "model.first_k_dense_replace")
    elif (every := keys.get("moe_layer_freq")) is not None:
        text = f"({every})".replace(" ", "") if isinstance(every, list) else every
        yield Line(ARGS, "--moe-layer-freq", text, "model.moe_layer_freq")


def _run(said: Said) -> Iterator[Line]:
    batch = said.whole("batch.micro_batch") * said.whole("batch.accumulation") * said.whole("parallel.dp")
    if said.get("task") not in ("pretrain", "sft"):
        raise refuse(said, "task", "pretrain_gpt.py trains pretrain and sft")
    yield Line(ARGS, "--micro-batch-size", said.get("batch.micro_batch"), "batch.micro_batch")
    yield Line(ARGS, "--global-batch-size", batch, "batch.accumulation")
    yield Line(ARGS, "--seq-length", said.get("batch.sequence"), "batch.sequence")
    yield Line(ARGS, "--sft", said.get("task") == "sft", "task")
    yield from _precision(said)
    if (backend := word(BACKENDS, said.get("stack.attention"))) is not None:
        local = said.get("stack.options.transformer_impl") == "local"
        yield Line(ARGS, "--attention-backend", "auto" if local else backend, "stack.attention")
    kind = str(said.get("stack.loss", "")).removeprefix("vocab-parallel").removeprefix("-")
    if kind in ("fused", "te"):
        yield Line(ARGS, "--cross-entropy-loss-fusion", True, "stack.loss")
        yield Line(ARGS, "--cross-entropy-fusion-impl", "native" if kind == "fused" else kind, "stack.loss")
    for name in ("fine_grained_activation_offloading", "cpu_offloading_num_layers"):
        if value := said.get(f"stack.options.{name}"):
            yield Line(ARGS, f"--{name.replace('_', '-')}", value, f"stack.options.{name}")


def _engine(said: Said) -> Lever:
    """Whose layers run: Transformer Engine's, Megatron's own, or what the release has by itself."""
    name, path = "--transformer-impl", "stack.kernels"
    own, te = Line(ARGS, name, "local", path), Line(ARGS, name, "transformer_engine", path)
    return ((te,), (own,), ()) if "te" in said.get(path, ()) else ((own,), (te,), ())


def _precision(said: Said) -> Iterator[Line]:
    held, compute = said.get("precision.weights"), said.get("precision.compute")
    base = compute if compute in ("bf16", "fp16") else "fp32" if held == "fp32" and compute == "fp32" else "bf16"
    gradients = said.get("precision.gradients")
    if base != "fp32":
        yield Line(ARGS, f"--{base}", True, "precision.weights")
    if gradients == "bf16" and base == "bf16":
        yield Line(ARGS, "--grad-reduce-in-bf16", True, "precision.gradients")
    if gradients == "fp32" and base != "fp32":
        yield Line(ARGS, "--accumulate-allreduce-grads-in-fp32", True, "precision.gradients")
    recipe = said.get("precision.fp8.recipe")
    if compute == "nvfp4":
        yield Line(ARGS, "--fp4-format", "e2m1", "precision.compute")
    elif compute in ("fp8", "mxfp8"):
        yield Line(ARGS, "--fp8-format", said.get("precision.fp8.format", "hybrid"), "precision.fp8.format")
        if recipe or compute == "mxfp8":
            yield Line(ARGS, "--fp8-recipe", recipe or compute, "precision.fp8.recipe")
        yield Line(ARGS, "--fp8-param-gather", bool(said.get("precision.fp8.param_gather")), "precision.fp8")


def _optimizer(said: Said) -> Lever:
    """The optimizer, with and without states whose dtypes are given."""
    kind, path = said.get("optimizer.name"), "optimizer.name"
    name = ADAM[0] if kind in ADAM else word(OPTIMIZERS, kind)
    if name is None:
        known = ", ".join((*ADAM, *OPTIMIZERS.values()))
        raise refuse(said, path, f"Megatron-LM has {known}")
    first = [Line(ARGS, "--clip-grad", said.get("optimizer.grad_clip", 0.0), "optimizer.grad_clip")]
    if name != ADAM[0]:
        first.append(Line(ARGS, "--optimizer", name, path))
    if said.get("offload.optimizer"):
        first.append(Line(ARGS, "--optimizer-cpu-offload", True, "offload.optimizer"))
    states = {"--exp-avg-dtype": "first", "--exp-avg-sq-dtype": "second"}
    held = {option: said.get(f"optimizer.states.{state}") for option, state in states.items()}
    dtypes = {**held, "--main-params-dtype": said.get("precision.master")}
    aware = "parallel.options.use_precision_aware_optimizer"
    if not said.get(aware) and not any(held.values()):
        return (tuple(first),)
    more = [Line(ARGS, option, word(DTYPES, one), "optimizer.states") for option, one in dtypes.items() if one]
    return ((*first, Line(ARGS, "--use-precision-aware-optimizer", True, aware), *more),)


def _mesh(said: Said) -> Iterator[Line]:
    for name, axis in DEGREES:
        if said.whole(f"parallel.{axis}") > 1 or (axis == "etp" and said.get("parallel.etp") is not None):
            yield Line(ARGS, name, said.whole(f"parallel.{axis}"), f"parallel.{axis}")
    strategy = said.get("parallel.strategy")
    if strategy != PLAIN:
        name = next((name for name, one in STRATEGIES if one == strategy), "")
        if not name:
            known = ", ".join((PLAIN, *dict.fromkeys(one for _, one in STRATEGIES)))
            raise refuse(said, "parallel.strategy", f"Megatron-LM runs {known}")
        yield Line(ARGS, name, True, "parallel.strategy")
    yield Line(ARGS, "--sequence-parallel", bool(said.get("parallel.sp")), "parallel.sp")
    layout = said.get(f"parallel.options.{_option(LAYOUT)}")
    if layout is None and said.whole("parallel.vpp") > 1:
        chunks = "--num-virtual-stages-per-pipeline-rank"
        yield Line(ARGS, chunks, said.whole("parallel.vpp"), "parallel.vpp")
    for name in (LAYOUT, *EMBEDDED, "--cp-comm-type", "--moe-router-load-balancing-type", f"--{INSTANCES}"):
        path = f"parallel.options.{_option(name)}"
        if (value := said.get(path)) is not None:
            yield Line(ARGS, name.replace("_", "-"), value, path)


def _option(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def _recompute(said: Said) -> Iterator[Line]:
    kind, path = said.get("stack.recompute.kind", "none"), "stack.recompute"
    if kind == "none":
        return
    yield Line(ARGS, "--recompute-granularity", kind, path)
    if kind == "full":
        yield Line(ARGS, "--recompute-method", said.get("stack.recompute.method", "uniform"), f"{path}.method")
        yield Line(ARGS, "--recompute-num-layers", said.whole("stack.recompute.num_layers"), f"{path}.num_layers")
    elif modules := said.get("stack.recompute.modules"):
        yield Line(ARGS, "--recompute-modules", list(modules), f"{path}.modules")


def _saves(said: Said) -> Iterator[Line]:
    lines = [Line(ARGS, name, True, path) for name, path, value in SAVES if said.get(path) is value]
    if form := word(SAVED, said.get("save.format")):
        lines.append(Line(ARGS, "--ckpt-format", form, "save.format"))
    if lines:
        yield Line(ARGS, "--save", "checkpoints", "save")
    yield from lines


def _options(said: Said) -> Iterator[Line]:
    """Arguments that options of the plan are, and those that turn one off."""
    done = {f"parallel.options.{_option(name)}" for name in (LAYOUT, *EMBEDDED, f"--{INSTANCES}")}
    for name, path in OPTIONS:
        value: Any = said.get(path)
        if value not in (None, False) and path not in done:
            done.add(path)
            yield Line(ARGS, name, list(value) if isinstance(value, tuple) else value, path)
    for name, path in TURNED_OFF.items():
        if said.get(path) is False and path not in done:
            done.add(path)
            yield Line(ARGS, name, True, path)


def files(lines: tuple[Line, ...], names: Names, head: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The script."""
    launcher = next(line.value for line in lines if line.part == LAUNCH)
    kept = [line for line in lines if line.part in (ARGS, ENV)]
    yield names.script, script(kept, f"{launcher} {PROGRAM}", head, bare=True)
