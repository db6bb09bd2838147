"""ms-swift: what its keys hand the Trainer."""

from __future__ import annotations

from typing import Any

from trainledger.facts.import_bundled import SWIFT_BUNDLED, SWIFT_FSDP2
from trainledger.facts.import_hf import NEVER
from trainledger.facts.import_swift import (
    ATTENTION,
    BITS,
    DDP_REENTRANT,
    DTYPE,
    DTYPES,
    KEPT_LOGITS,
    REENTRANT,
    STEP_BATCH,
    SWIFT_FILLED,
    TUNERS_READ,
)
from trainledger.facts.option_row import Direction
from trainledger.facts.preferences import SAMPLED
from trainledger.importers.front_end import DEFAULT, FrontEnd
from trainledger.importers.piece import Given

KIND = ("tuner_type", "train_type", "sft_type")
ALL = ("ALL", "all", "all-linear", "DEFAULT", "AUTO")


def kind_of(front: FrontEnd) -> str:
    """The tuner: lora where none is named; empty for full training."""
    name = front.own.name(*KIND)
    if not name:
        return "lora"
    word = front.word(name, (*TUNERS_READ, "longlora", "qlora"))
    return TUNERS_READ.get(word or "lora", "lora")


def adapter(front: FrontEnd) -> None:
    """LoRA and its relatives, and weights in fewer bits."""
    own, kind = front.own, kind_of(front)
    where = own.where(*KIND, "model", "model_id_or_path")
    targets = own.texts("target_modules", "lora_target_modules")
    if targets and any(one in ALL for one in targets):
        targets = ["all-linear"]
    if kind == "lora":
        front.args["use_peft"] = Given(True, where)
        front.same(("lora_r", "lora_rank"), ("use_dora", "use_dora"))
        front.hand("lora_dropout", own.raw("lora_dropout", "lora_dropout_p"), "lora_dropout", "lora_dropout_p")
        front.hand("lora_target_modules", targets, "target_modules", "lora_target_modules")
        front.fill(SWIFT_FILLED, "lora_r", "lora_dropout", "lora_target_modules")
        extra = own.texts("modules_to_save", "lora_modules_to_save")
        front.hand("lora_modules_to_save", extra, "modules_to_save", "lora_modules_to_save")
        front.hand("lora_target_parameters", own.texts("target_parameters"), "target_parameters")
        if (bias := own.text("lora_bias", "lora_bias_trainable")) not in (None, "none"):
            front.hand("lora_bias", bias, "lora_bias", "lora_bias_trainable")
    elif kind:
        _relative(front, kind, targets, where)
    else:
        _partly(front)
    _bits(front)


_RANKS = {"adalora": "lora_rank", "vera": "vera_rank"}
_SETTINGS = {
    "boft": ("boft_block_size", "boft_block_num", "boft_n_butterfly_factor", "boft_dropout"),
    "adalora": ("adalora_init_r",),
    "fourierft": ("fourier_n_frequency",),
    "vera": (),
}


def _relative(front: FrontEnd, kind: str, targets: list[str] | None, where: str) -> None:
    own, piece = front.own, front.piece
    piece.give("adapter.kind", kind, where)
    chosen: Any = "all-linear" if targets in (None, ["all-linear"]) else targets
    piece.give("adapter.targets", chosen, own.where("target_modules") or where)
    if kind in _RANKS and (rank := own.whole(_RANKS[kind], least=1)):
        piece.give("adapter.r", rank, own.where(_RANKS[kind]))
    for name in _SETTINGS.get(kind, ()):
        if (value := own.number(name)) is not None:
            short = name.removeprefix("adalora_").removeprefix("fourier_")
            piece.give(f"adapter.options.{short}", value, own.where(name))


def _partly(front: FrontEnd) -> None:
    """Full training of a part: parameters that are frozen, and those of them that are trained after all."""
    own = front.own
    ratio, kept = own.number("freeze_parameters_ratio"), own.texts("trainable_parameters")
    if ratio is not None and ratio >= 1 and kept:
        front.piece.give("trainable", kept, own.where("trainable_parameters"))
        return
    for name in ("freeze_parameters", "freeze_parameters_ratio", "freeze_parameters_regex"):
        if own.raw(name) not in (None, 0, 0.0, [], ""):
            front.uncounted(name, own.where(name), Direction.HIGH)


def _bits(front: FrontEnd) -> None:
    own = front.own
    bits, method = own.whole("quant_bits", "quantization_bit"), own.text("quant_method") or "bnb"
    if not bits:
        return
    name = own.name("quant_bits", "quantization_bit")
    if method != "bnb" or bits not in BITS:
        front.refuse(name, "4 or 8 bits of bitsandbytes (--quant_method bnb) can be read")
        return
    front.hand("load_in_8bit" if bits == max(BITS) else "load_in_4bit", True, name)
    if bits != max(BITS):
        for word in ("bnb_4bit_quant_type", "bnb_4bit_use_double_quant"):
            front.same((word, word))
        front.fill(SWIFT_FILLED, "bnb_4bit_quant_type", "bnb_4bit_use_double_quant")


def precision(front: FrontEnd) -> None:
    """The dtype of the weights, which decides what is autocast: bf16 for bfloat16, fp16 for the others."""
    own, name = front.own, front.own.name("torch_dtype", "dtype")
    word = DTYPES.get(own.text("torch_dtype", "dtype") or "", "")
    if name and not word and own.text(name) not in ("AUTO", "auto"):
        front.refuse(name, f"one of {', '.join(DTYPES)} is needed")
    if word:
        front.hand("dtype", word, name)
        half = "bf16" if word == "bfloat16" else "fp16"
        front.args[half] = Given(True, own.where(name))
    else:
        front.fill((DTYPE,))
        front.fill(SWIFT_FILLED, "bf16")
    for name in ("bf16", "fp16"):
        if own.flag(name) is not None:
            front.hand(name, own.flag(name), name)
    if (lora := own.text("lora_dtype")) in DTYPES and kind_of(front):
        short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[DTYPES[str(lora)]]
        front.piece.give("adapter.dtype", short, own.where("lora_dtype"))


def batch(front: FrontEnd, world: Given | None) -> None:
    """Micro-batch, accumulation (by default as many as make 16 sequences of all ranks together) and length."""
    own = front.own
    names = ("per_device_train_batch_size", "batch_size")
    front.hand(names[0], own.raw(*names), *names)
    front.fill(SWIFT_FILLED, names[0])
    front.same(("gradient_accumulation_steps", "gradient_accumulation_steps"))
    if "gradient_accumulation_steps" not in front.args:
        micro = own.whole(*names, least=1) or 1
        ranks = int(world.value) if world is not None else 1
        why = f"{STEP_BATCH.sequences} sequences a step"
        value = max(1, -(-STEP_BATCH.sequences // (micro * ranks)))
        front.args["gradient_accumulation_steps"] = Given(value, f"{DEFAULT}{why}")
        front.sources[why] = STEP_BATCH.source
    front.same(("max_length", "max_length"))
    if "max_length" not in front.args:
        where = f"{own.where('model', 'model_id_or_path')} (without max_length samples are as long as the model allows)"
        front.uncounted("max_length", where, Direction.EITHER)
    for name in ("packing", "padding_free"):
        if own.flag(name):
            front.hand(name, True, name)
    front.fill((KEPT_LOGITS,))
    if own.flag("use_logits_to_keep") is False:
        front.args.pop("use_logits_to_keep", None)


def evaluation(front: FrontEnd) -> None:
    """An evaluation wherever there is a set for it: one of its own, or a share of the training's, which a stream has
    none of. Where no strategy is named it follows that of checkpoints.

    Source: swift/arguments/sft_args.py, _init_eval_strategy; base_args/data_args.py, _init_val_dataset_exists (4.6).
    """
    own, strategies = front.own, ("eval_strategy", "save_strategy")
    sets = [name for name in ("val_dataset", "cached_val_dataset") if own.raw(name)]
    if (own.number("split_dataset_ratio") or 0) > 0 and not own.flag("streaming"):
        sets.append("split_dataset_ratio")
    said = next((name for name in strategies if own.raw(name) is not None), "")
    if not sets or str(own.raw(said) if said else "").lower() in NEVER:
        return
    front.hand(strategies[0], own.raw(said) if said else "steps", said or sets[0])
    front.same(("per_device_eval_batch_size", "per_device_eval_batch_size"))
    front.fill(SWIFT_FILLED, "per_device_eval_batch_size")


def recompute(front: FrontEnd, world: Given | None) -> None:
    """Recompute, which ms-swift has on; its own checkpoint function decides whether with reentrance."""
    own = front.own
    front.hand("gradient_checkpointing", own.flag("gradient_checkpointing"), "gradient_checkpointing")
    front.fill(SWIFT_FILLED, "gradient_checkpointing")
    kwargs = own.mapping("gradient_checkpointing_kwargs")
    if kwargs and "use_reentrant" in kwargs:
        front.hand("gradient_checkpointing_kwargs", kwargs, "gradient_checkpointing_kwargs")
        return
    ranks = int(world.value) if world is not None else 1
    plain = ranks > 1 and not own.raw("deepspeed") and not own.raw("fsdp")
    front.fill((DDP_REENTRANT if plain else REENTRANT,))


def optimizer(front: FrontEnd) -> None:
    """GaLore; the optimizer's other plugins cannot be read."""
    own = front.own
    if own.flag("use_galore") or own.text("optimizer") == "galore":
        word = "galore_adamw_layerwise" if own.flag("galore_optim_per_parameter") else "galore_adamw"
        front.hand("optim", word, "use_galore", "optimizer")
        given = {
            key: own.number(f"galore_{name}")
            for key, name in (("rank", "rank"), ("update_proj_gap", "update_proj_gap"), ("scale", "scale"))
        }
        known = {key: value for key, value in given.items() if value is not None}
        front.hand("optim_args", known or None, "galore_rank", "use_galore")
        front.hand("optim_target_modules", own.texts("galore_target_modules"), "galore_target_modules")
    elif own.text("optimizer") == "muon":
        front.piece.give("optimizer.name", "muon", own.where("optimizer"))
    elif own.text("optimizer") not in (None, "lorap", "default", "multimodal"):
        front.refuse("optimizer", "galore, muon, lorap or default can be read")


def stack(front: FrontEnd) -> None:
    """Attention, Liger, and noise on the embeddings."""
    own = front.own
    if word := front.word("attn_impl", ATTENTION):
        front.hand("attn_implementation", ATTENTION[word] or None, "attn_impl")
    elif own.flag("use_flash_attn"):
        front.hand("attn_implementation", "flash_attention_2", "use_flash_attn")
    front.hand("use_liger_kernel", own.flag("use_liger", "use_liger_kernel"), "use_liger", "use_liger_kernel")
    names = ("neftune_noise_alpha", "neftune_alpha")
    front.hand(names[0], own.raw(*names), *names)
    if own.flag("use_vllm") and own.text("rlhf_type") != SAMPLED:
        front.uncounted("use_vllm", own.where("use_vllm"), Direction.LOW)


def parallel(front: FrontEnd, folder: str) -> None:
    """DeepSpeed by a name, a file or in place; FSDP2 by its name; sequence parallelism."""
    own = front.own
    front.settings("deepspeed", SWIFT_BUNDLED, folder)
    size = own.whole("zero_hpz_partition_size", least=1)
    if size is not None:
        front.piece.give("parallel.options.zero_hpz_partition_size", size, own.where("zero_hpz_partition_size"))
    if (degree := own.whole("deepspeed_autotp_size", least=1)) and degree > 1:
        front.piece.give("parallel.tp", degree, own.where("deepspeed_autotp_size"))
    if own.text("fsdp") in SWIFT_FSDP2.names:
        for name, value in SWIFT_FSDP2.data.items():
            front.hand(name, value, "fsdp")
        front.args.pop("gradient_checkpointing", None)
        front.args.pop("gradient_checkpointing_kwargs", None)
    else:
        front.same(("fsdp", "fsdp"), ("fsdp_config", "fsdp_config"))
    if (length := own.whole("sequence_parallel_size", least=1)) and length > 1:
        front.piece.give("parallel.cp", length, own.where("sequence_parallel_size"))
        front.piece.give("parallel.options.cp_comm_type", "ulysses", own.where("sequence_parallel_size"))
