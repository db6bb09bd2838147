"""torchtune's YAML of a plan, with the `tune run` line of its recipe."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.export import NODE
from trainledger.facts.import_torchtune import (
    ADAPTER_ONLY,
    ARGUMENTS,
    ASYNC,
    BUILDERS,
    DEGREES,
    DTYPES,
    KEYS,
    LENGTHS,
    LOSSES,
    MLP_TARGETS,
    OPTIMIZERS,
    OUTPUT_TARGET,
    RECIPES,
    SHAPED,
    TARGETS,
    TASKS,
    TIED,
)
from trainledger.facts.torchtune import NAME
from trainledger.importers.emit import ENV, LAUNCH, OWN, Lever, Line, Names, Said, Sheet, refuse, straight, word
from trainledger.importers.emit_hf import LORA, layers_of, variables
from trainledger.importers.emit_model import alike
from trainledger.importers.emit_text import script, yaml_file
from trainledger.importers.hf_adapter import ALL_LINEAR
from trainledger.importers.torchtune_parts import LORA as PREFIX

FRAMEWORK, SUFFIX = NAME, ".yaml"
MODELS = "torchtune.models"
PLAIN = ("none", "fsdp1", "fsdp2", "hsdp")


def sheet(said: Said, names: Names) -> Sheet:
    """The configuration and its recipe. Raises InputError for what no recipe trains."""
    if said.get("parallel.strategy") not in PLAIN:
        raise refuse(said, "parallel.strategy", f"torchtune's recipes run one of {', '.join(PLAIN)}")
    lines = (
        *variables(said),
        *_model(said),
        *_adapter(said),
        *straight(KEYS, said, OWN),
        Line(OWN, LENGTHS[0], said.get("batch.sequence"), "batch.sequence"),
        *_optimizer(said),
        *_memory(said),
        *(_mesh(said) if _many(said) else ()),
        *_launch(said),
    )
    return Sheet(lines, (_loss(said), _packed(said)))


def _many(said: Said) -> bool:
    return bool(said.get("parallel.strategy") != "none")


def _model(said: Said) -> Iterator[Line]:
    keys = said.plan.keys()
    adapted = "" if said.get("adapter.kind") is None else PREFIX
    builder = next(filter(None, (word(BUILDERS, entry.name) for entry in alike(said))), None)
    if builder is None:
        builder = _shaped(said)
        for argument, row in ARGUMENTS.items():
            if row.value in keys and row.value != "tie_word_embeddings":
                yield Line(OWN, f"model.{argument}", keys[row.value], f"model.{row.value}")
    family = builder.partition("_")[0] if builder not in SHAPED else builder
    for known in ("llama3_1", "llama3_2", "llama3_3", "qwen2_5", "code_llama2"):
        family = known if builder.startswith(known) else family
    yield Line(OWN, "model._component_", f"{MODELS}.{family}.{adapted}{builder}", "model")


def _shaped(said: Said) -> str:
    """The builder that takes the model's shape. Raises InputError where no builder makes its family."""
    keys = said.plan.keys()
    kind, tied = keys.get("model_type"), bool(keys.get("tie_word_embeddings"))
    found = [name for name, row in SHAPED.items() if row.value == kind]
    fitting = [name for name in found if (name in TIED) == tied] or found
    if not fitting and not said.partial:
        known = ", ".join(dict.fromkeys(row.value for row in SHAPED.values()))
        raise refuse(said, "model.model_type", f"torchtune builds {known} of any shape, and named models")
    return next(iter(fitting), "")


def _adapter(said: Said) -> Iterator[Line]:
    kind, targets = said.get("adapter.kind"), said.get("adapter.targets", ())
    if kind is None:
        return
    if kind not in LORA or targets == ALL_LINEAR:
        path = "adapter.kind" if kind not in LORA else "adapter.targets"
        raise refuse(said, path, f"torchtune's builders take lora and dora on {', '.join(TARGETS)}, the MLP, the head")
    attention = [name for name, row in TARGETS.items() if row.value in targets]
    yield Line(OWN, "model.lora_attn_modules", attention, "adapter.targets")
    yield Line(OWN, "model.apply_lora_to_mlp", MLP_TARGETS[0] in targets, "adapter.targets")
    yield Line(OWN, "model.apply_lora_to_output", OUTPUT_TARGET in targets, "adapter.targets")
    yield Line(OWN, "model.lora_rank", said.get("adapter.r"), "adapter.r")
    yield Line(OWN, "model.lora_dropout", said.get("adapter.dropout", 0.0), "adapter.dropout")
    if said.get("quantization.kind") == "nf4":  # which every builder takes; few have one of QLoRA's name
        yield Line(OWN, "model.quantize_base", True, "quantization.kind")
    if kind == LORA[1]:
        yield Line(OWN, "model.use_dora", True, "adapter.kind")


def _optimizer(said: Said) -> Iterator[Line]:
    kind, how = str(said.get("optimizer.name")), said.get("optimizer.implementation")
    name = word(OPTIMIZERS, kind.removesuffix("-momentum"))
    if name is None:
        raise refuse(said, "optimizer.name", f"one of {', '.join(dict.fromkeys(r.value for r in OPTIMIZERS.values()))}")
    yield Line(OWN, "optimizer._component_", name, "optimizer.name")
    if kind.endswith("-momentum"):
        yield Line(OWN, "optimizer.momentum", 0.9, "optimizer.name")
    if how == "fused":
        yield Line(OWN, "optimizer.fused", True, "optimizer.implementation")
    elif how in ("foreach", "loop"):
        yield Line(OWN, "optimizer.foreach", how == "foreach", "optimizer.implementation")


def _memory(said: Said) -> Iterator[Line]:
    kind, path = said.get("stack.recompute.kind", "none"), "stack.recompute"
    yield Line(OWN, "dtype", word(DTYPES, said.get("precision.weights")), "precision.weights")
    yield Line(OWN, "enable_activation_checkpointing", kind == "full", path)
    if kind == "selective":
        yield Line(OWN, "ac_mode", "selective", path)
        yield Line(OWN, "ac_option", layers_of(said) or "op", path)
    if said.get("offload.activations"):
        yield Line(OWN, "enable_activation_offloading", True, "offload.activations")
    if said.get("save.format") == "adapter":
        yield Line(OWN, ADAPTER_ONLY, True, "save.format")
    if said.get("save.asynchronous"):
        yield Line(OWN, ASYNC, True, "save.asynchronous")
    yield Line(OWN, "compile", bool(said.get("stack.compile")), "stack.compile")
    if said.get("precision.compute") == "fp8":
        yield Line(OWN, "enable_fp8_training", True, "precision.compute")
        if recipe := said.get("precision.fp8.recipe"):
            yield Line(OWN, "fp8_recipe_name", recipe, "precision.fp8.recipe")


def _mesh(said: Said) -> Iterator[Line]:
    for name, axis in DEGREES:
        if said.whole(f"parallel.{axis}") > 1:
            yield Line(OWN, name, said.whole(f"parallel.{axis}"), f"parallel.{axis}")
    dp, shard = said.whole("parallel.dp"), said.whole("parallel.shard")
    if said.get("parallel.strategy") == "hsdp":
        yield Line(OWN, "data_parallel_replicate_dim", dp // shard or 1, "parallel.dp")
        yield Line(OWN, "data_parallel_shard_dim", shard, "parallel.shard")
    after = said.get("parallel.reshard_after_forward", True)
    yield Line(OWN, "fsdp_reshard_after_forward", after, "parallel.reshard_after_forward")
    yield Line(OWN, "fsdp_cpu_offload", said.get("offload.params") == "cpu", "offload.params")


def _launch(said: Said) -> Iterator[Line]:
    where = "distributed" if _many(said) else "single_device"
    task = said.get("task")
    adapted = said.get("adapter.kind") is not None
    if task not in ("sft", "dpo"):
        raise refuse(said, "task", "torchtune's recipes for one model train sft and dpo")
    kind = "dpo" if task == "dpo" else "finetune"
    recipe = f"{'lora' if adapted else 'full'}_{kind}_{where}"
    if recipe not in RECIPES:
        raise refuse(said, "task", f"torchtune has no recipe {recipe}")
    yield Line(LAUNCH, "recipe", recipe, "task")
    nodes, each = said.nodes(NODE.devices)
    yield Line(LAUNCH, "nnodes", nodes)
    yield Line(LAUNCH, "nproc_per_node", each, "parallel.world")


def _loss(said: Said) -> Lever:
    """The loss by the task, or by how logits are made."""
    if (name := word(TASKS, said.get("task"))) is not None:
        return ((Line(OWN, "loss._component_", name, "task"),),)
    name = word(LOSSES, said.get("stack.loss")) or next(iter(LOSSES))
    return ((Line(OWN, "loss._component_", name, "stack.loss"),),)


def _packed(said: Said) -> Lever:
    """Packed samples have a mask of their own, which flex attention reads."""
    flex = said.get("stack.attention") == "flex"
    return ((Line(OWN, "dataset.packed", flex, "stack.attention"),),)


def files(lines: tuple[Line, ...], names: Names, head: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The YAML, and the script with the line that starts its recipe."""
    yield names.main, yaml_file([line for line in lines if line.part == OWN], head)
    held = {line.key: line.value for line in lines if line.part == LAUNCH}
    recipe = held.pop("recipe")
    many = " ".join(f"--{name} {value}" for name, value in held.items()) if "distributed" in recipe else ""
    command = " ".join(filter(None, ("tune run", many, recipe, "--config", names.main)))
    yield names.script, script([line for line in lines if line.part == ENV], command, head)
