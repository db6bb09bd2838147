"""A run by Hugging Face's Trainer or TRL, from the names of TrainingArguments and ModelConfig, to keys of the plan.

Other formats translate their own names into these and call `run_piece`. What depends on several files together (the
dtypes under a strategy that another file names, defaults) is settled after all were read: `hf_settle`.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainledger.base.problems import nearest
from trainledger.facts.import_hf import (
    COUNTS,
    DDP_FLAGS,
    FLAGS,
    LENGTHS,
    MODEL_KEYS,
    NUMBERS,
    SHARES,
    SWITCHES,
    TRAINER_KEYS,
)
from trainledger.facts.import_hf_filled import ATTENTION_WORDS, DTYPE_WORDS, ORDINALS
from trainledger.facts.import_hf_optim import OPTIMS
from trainledger.facts.import_hf_trl import TRL_KEYS
from trainledger.facts.import_rows import KeyRow, Means
from trainledger.facts.phases import DISTILL
from trainledger.facts.preferences import LIKELIHOOD, LOSSES, SAMPLED
from trainledger.facts.supervised import SCALED
from trainledger.importers.accelerate_yaml import mesh_keys
from trainledger.importers.arguments import Arguments
from trainledger.importers.deepspeed_json import deepspeed_argument
from trainledger.importers.draft import Uncounted, Unknown
from trainledger.importers.formats import Context
from trainledger.importers.hf_adapter import adapter_keys, quantization_keys
from trainledger.importers.hf_beyond import beyond_keys
from trainledger.importers.hf_fsdp import trainer_fsdp
from trainledger.importers.hf_offload import ARGUMENT, OFFLOADS
from trainledger.importers.hf_roles import LOSS_TYPE, TEACHES, grpo_roles
from trainledger.importers.piece import AUTO, Given, Piece

ROWS: dict[str, KeyRow] = {row.name: row for row in (*TRAINER_KEYS, *MODEL_KEYS, *TRL_KEYS)}
# Names that a caller adds to the arguments: the plan's task; whether TRL's trainers and defaults run; what loads it.
TASK, TRL = "_task", "_trl"
RUN, KIND = "run.on", "run.kind"  # the facts that a Trainer runs, and that it is TRL's


def run_piece(piece: Piece, args: Mapping[str, Given], context: Context) -> None:
    """Read the arguments of a Trainer's run into the piece.

    `args`: values by Hugging Face's names, each with its place; a value may be of its kind or a text as a command line
    has it. `_task` gives the plan's task, `_trl: true` says that TRL's defaults hold (a bare Trainer otherwise). Keys
    that no row knows are listed as unknown, those that move memory uncounted as such; wrong values are problems.
    """
    given = Arguments(args, piece)
    trl = bool(given.flag(TRL))
    piece.facts[RUN] = Given(True, given.where(TRL))
    if trl:
        piece.facts[KIND] = Given(TRL, given.where(TRL))
    if task := given.text(TASK):
        piece.give("task", task, given.where(TASK))
    _listed(given)
    _model(given)
    _batch(given)
    _optimizer(given)
    _precision(given)
    _stack(given)
    _recompute(given)
    before = (one.given["task"].value for one in context.pieces if "task" in one.given)  # a command's, of its file
    named = given.text(TASK) or next(before, "")
    if trl and named == DISTILL and (teacher := given.text(TEACHES)):
        piece.give("roles.teacher.model", teacher, given.where(TEACHES))
    if trl and named == SAMPLED:
        own = piece.filled.get("stack.versions.trl")  # a front end's
        grpo_roles(given, context.versions.get("trl") or (str(own.value) if own else None))
    beyond_keys(given)
    adapter_keys(given, trl)
    quantization_keys(given, trl)
    trainer_fsdp(given)
    deepspeed_argument(given)
    _ddp(given)
    if isinstance(given.raw("parallelism_config"), dict):
        mesh_keys(given.below("parallelism_config"))


def _listed(given: Arguments) -> None:
    """What no row knows, and what is not counted."""
    for name, one in given.given.items():
        if name.startswith("_"):
            continue
        row = ROWS.get(name)
        if row is None:
            given.piece.unknown.append(Unknown(name, one.where, nearest(name, ROWS)))
        elif row.means is Means.UNCOUNTED and str(one.value).lower() not in ("none", "false", "0", "", "0.0"):
            given.piece.uncounted.append(Uncounted(name, one.where, row.direction.value))


def _give(given: Arguments, path: str, value: object, *names: str) -> None:
    if value is not None:
        given.piece.give(path, value, given.where(*names))


def _model(given: Arguments) -> None:
    names = ("model_name_or_path", "model_name")
    _give(given, "model", given.text(*names), *names)
    loading = given.below("model_init_kwargs")
    for source, names in ((loading, ("dtype", "torch_dtype")), (given, ("dtype", "torch_dtype"))):
        word = source.text(*names)
        if word is None or "run.dtype" in given.piece.facts:
            continue
        dtype = DTYPE_WORDS.get(word.removeprefix("torch."), AUTO if word == AUTO else "")
        if not dtype:
            allowed = f"one of {', '.join(sorted(set(DTYPE_WORDS)))} or auto is needed"
            given.piece.refuse(source.name(*names), f"found {word!r}", allowed, where=source.where(*names))
        given.piece.facts["run.dtype"] = Given(dtype, source.where(*names))
    kernel = loading.text("attn_implementation") or given.text("attn_implementation")
    where = loading.where("attn_implementation") or given.where("attn_implementation")
    if kernel is None and given.flag("use_flash_attention_2", "use_flash_attn"):
        kernel, where = "flash", given.where("use_flash_attention_2", "use_flash_attn")
    if kernel is None:
        return
    found = ATTENTION_WORDS.get(kernel.removeprefix("paged|").partition(":")[0].partition("@")[0])
    if found is None:
        near = nearest(kernel, ATTENTION_WORDS)
        fix = f"Did you mean {near}?" if near else ""
        given.piece.refuse("attn_implementation", f"found {kernel!r}", "it has no rule", fix, where)
    else:
        given.piece.give("stack.attention", found, where)


def _batch(given: Arguments) -> None:
    for path, names in COUNTS:
        _give(given, path, given.whole(*names, least=1), *names)
    parts = [given.whole(name, least=1) for name in ("max_prompt_length", "max_completion_length")]
    if all(parts) and not given.has(*LENGTHS):  # a prompt and what is generated after it
        _give(given, "batch.sequence", sum(part or 0 for part in parts), "max_completion_length")


def _optimizer(given: Arguments) -> None:
    word = given.text("optim")
    if word is None and given.flag("adafactor"):
        word = "adafactor"
    where = given.where("optim", "adafactor")
    if word is not None:
        row = OPTIMS.get(word.removeprefix("OptimizerNames.").lower())
        if row is None:
            plain = f"{word.lower()}_torch"
            near = plain if plain in OPTIMS else nearest(word, OPTIMS)
            given.piece.refuse(
                "optim", f"found {word!r}", "an optimizer of the Trainer that has a rule is needed",
                f"Did you mean {near}?" if near else "", where,
            )  # fmt: skip
            return
        given.piece.give("optimizer.name", row.optimizer, where)
        given.piece.give("optimizer.implementation", row.implementation or None, where)
        if row.in_backward:
            given.piece.give("optimizer.in_backward", True, where)
        for name, value in row.options:
            given.piece.give(f"optimizer.options.{name}", value, where)
    _options(given)
    clip = given.number("max_grad_norm")
    if clip is not None:
        _give(given, "optimizer.grad_clip", float(clip), "max_grad_norm")
        if clip <= 0:
            given.piece.give("optimizer.grad_clip", None, given.where("max_grad_norm"))


def _options(given: Arguments) -> None:
    """`optim_args`: `rank=64, update_proj_gap=200`, or a mapping."""
    raw = given.raw("optim_args")
    if isinstance(raw, str) and not raw.strip().startswith("{"):
        pairs = [part.partition("=") for part in raw.replace(" ", "").split(",") if part]
        raw = {key: parsed(value) for key, _, value in pairs}
    for name, value in (raw if isinstance(raw, dict) else given.mapping("optim_args") or {}).items():
        _give(given, f"optimizer.options.{name}", value, "optim_args")
    modules = given.texts("optim_target_modules")
    _give(given, "optimizer.options.target_modules", modules, "optim_target_modules")


def parsed(text: str) -> object:
    """A value of a text as YAML has it."""
    from trainledger.importers.yaml_text import scalar

    return scalar(text)


def _precision(given: Arguments) -> None:
    """bf16 and fp16 say what is autocast; what that means depends on the strategy and is settled later."""
    for name in ("bf16", "fp16"):
        flag = given.flag(name)
        if flag is not None:
            given.piece.facts[f"run.{name}"] = Given(flag, given.where(name))


def _stack(given: Arguments) -> None:
    compiled = given.flag("torch_compile")
    _give(given, "stack.compile", compiled, "torch_compile")
    liger = ("use_liger_kernel", "use_liger", "use_liger_loss")
    if given.flag(*liger):
        kernels = given.below("liger_kernel_config")
        _give(given, "stack.kernels", ["liger"], *liger)
        if kernels.flag("fused_linear_cross_entropy") is not False and not kernels.flag("cross_entropy"):
            given.piece.facts["run.loss"] = Given("fused-linear", given.where(*liger))
    if given.flag("use_liger_loss"):
        given.piece.facts["run.liger_loss"] = Given(True, given.where("use_liger_loss"))
    for name in NUMBERS:
        value = given.number(name)
        if value:
            _give(given, f"stack.options.{name}", value, name)
    for name in SHARES:
        _give(given, f"stack.options.{name}", given.number(name), name)
    _loss_type(given)
    if given.flag(ARGUMENT):
        given.piece.facts[OFFLOADS] = Given(True, given.where(ARGUMENT))
    for name in SWITCHES:
        _give(given, f"stack.options.{name}", given.flag(name), name)
    for path, names in FLAGS:
        if given.flag(*names):
            _give(given, path, True, *names)


def _loss_type(given: Arguments) -> None:
    """TRL's losses by name: of several that DPO adds up one is a cross-entropy; of SFT's one reads all logits, whether
    others do is settled by release."""
    names = given.texts(LOSSES) or []
    if LIKELIHOOD in names or SCALED in names:
        _give(given, f"stack.options.{LOSSES}", names, LOSSES)
    if names:
        given.piece.facts[LOSS_TYPE] = Given(names[0], given.where(LOSSES))


def _recompute(given: Arguments) -> None:
    names = ("activation_checkpointing", "gradient_checkpointing")
    flag = given.flag(*names)
    inner = given.below(*(f"{name}_kwargs" for name in names))
    if flag is not None:
        _give(given, "stack.recompute.kind", "full" if flag else "none", *names)
    if flag is False:
        return
    every = inner.whole("every_n_layers", least=1)
    if every and every > 1 and flag:
        _give(given, "stack.recompute.kind", "selective", *names)
        suffix = ORDINALS.get(every, "th")
        _give(inner, "stack.recompute.policy", f"every {every}{suffix} layer", "every_n_layers")
    reentrant = inner.flag("use_reentrant")
    if reentrant is None:
        reentrant, inner = given.flag("gradient_checkpointing_use_reentrant"), given
    _give(inner, "stack.recompute.reentrant", reentrant, "use_reentrant", "gradient_checkpointing_use_reentrant")
    for name, way in (("offload", "the ledger may be too high"), ("selective", "the ledger may be too low")):
        if inner is not given and inner.flag(name):
            given.piece.uncounted.append(Uncounted(f"gradient_checkpointing_kwargs.{name}", inner.where(name), way))


def _ddp(given: Arguments) -> None:
    """DDP's own settings: they count where DDP runs, which is settled later."""
    for option in DDP_FLAGS:
        name = f"ddp_{option}"
        flag = given.flag(name)
        if flag is not None:
            given.piece.facts[f"ddp.{option}"] = Given(flag, given.where(name))
    size = given.number("ddp_bucket_cap_mb")
    if size is not None:
        given.piece.facts["ddp.bucket_cap_mb"] = Given(size, given.where("ddp_bucket_cap_mb"))
