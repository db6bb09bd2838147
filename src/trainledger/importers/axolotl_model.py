"""Axolotl: the adapter, quantised weights, dtypes, attention, fused kernels, recompute."""

from __future__ import annotations

from trainledger.facts.import_axolotl import (
    ADAPTER_SAME,
    ANY_DROPOUT,
    ATTENTIONS,
    AXOLOTL_FILLED,
    FSDP2,
    KERNELS_ON,
    LIGER,
    OFFLOADS,
)
from trainledger.facts.option_row import Direction
from trainledger.facts.versions import at_least
from trainledger.importers.front_end import FrontEnd
from trainledger.importers.piece import AUTO, Given

ADAPTERS = ("lora", "qlora")
OFFLOAD_WORDS = ("offload", "unsloth", "offload_disk")
LORA_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel")
FLASH = "flash"


def adapter(front: FrontEnd) -> None:
    """LoRA and QLoRA."""
    own = front.own
    kind = front.word("adapter", ADAPTERS)
    if kind is None:
        for name in ("load_in_4bit", "load_in_8bit"):
            if own.flag(name) and not own.has("adapter"):
                front.refuse(name, "weights in fewer bits need an adapter", "Give adapter: qlora, or lora with 8 bits.")
        return
    front.hand("use_peft", True, "adapter")
    if own.has("lora_r"):
        front.same(("lora_r", "lora_r"))
    else:
        front.needs("lora_r", f"the rank of the {kind} adapter is needed", "Give lora_r.")
    front.same(*ADAPTER_SAME)
    front.fill(AXOLOTL_FILLED, "lora_dropout")
    if own.flag("lora_target_linear"):
        front.hand("lora_target_modules", "all-linear", "lora_target_linear")
    else:
        front.same(("lora_target_modules", "lora_target_modules"))
    _quantised(front, kind)


def _quantised(front: FrontEnd, kind: str) -> None:
    own = front.own
    four, eight = own.flag("load_in_4bit"), own.flag("load_in_8bit")
    if kind == "qlora":
        if eight or not four:
            front.piece.refuse(
                "load_in_4bit", "not true", "adapter: qlora needs it", "Give load_in_4bit: true, load_in_8bit: false.",
                own.where("load_in_4bit", "adapter"),
            )  # fmt: skip
        inner = own.below("bnb_config_kwargs")
        front.hand("load_in_4bit", True, "load_in_4bit")
        for name in ("bnb_4bit_quant_type", "bnb_4bit_use_double_quant"):
            if name in inner.given:
                front.args[name] = inner.given[name]
        front.fill(AXOLOTL_FILLED, "bnb_4bit_quant_type", "bnb_4bit_use_double_quant")
    elif eight:
        front.hand("load_in_8bit", True, "load_in_8bit")
    elif four:
        front.refuse("load_in_4bit", "adapter: lora leaves the weights as they are", "Give adapter: qlora.")


def precision(front: FrontEnd) -> None:
    """The dtype that weights are loaded in, and what is autocast."""
    own = front.own
    raw = own.raw("bf16")
    fp16, whole = own.flag("fp16"), raw == "full"
    bf16 = True if whole else own.flag("bf16")
    if bf16 is None and not fp16 and raw in (None, AUTO) and "bf16" not in front.args:
        if raw == AUTO:
            front.args["bf16"] = Given(True, own.where("bf16"))
        else:
            front.fill(AXOLOTL_FILLED, "bf16")
        bf16 = True
    elif bf16 is not None:
        front.hand("bf16", bool(bf16) and not whole, "bf16")
    if fp16 is not None:
        front.hand("fp16", fp16 and not bf16, "fp16")
    if bf16 or own.flag("bfloat16"):
        dtype, names = "bfloat16", ["bf16", "bfloat16"]
    elif fp16 or own.flag("float16") or own.flag("load_in_8bit"):
        dtype, names = "float16", ["fp16", "float16", "load_in_8bit"]
    else:
        dtype, names = "float32", ["float32", "bf16", "fp16"]
    front.args["dtype"] = Given(dtype, own.where(*names) or front.args["bf16"].where)


def attention(front: FrontEnd) -> None:
    """The attention kernel: a word, or one of Axolotl's older switches, the more special first."""
    own = front.own
    if word := own.text("attn_implementation"):
        name = "attn_implementation"
    else:
        name = next((one for one in ATTENTIONS if own.flag(one)), "")
        word = ATTENTIONS.get(name, "")
    if word == "xformers":
        front.piece.give("stack.attention", "mem-efficient", own.where(name))
    elif word in ("sage", "fp8"):
        front.uncounted(name, own.where(name), Direction.EITHER)
    elif word:
        front.hand("attn_implementation", word, name)


def kernels(front: FrontEnd) -> None:
    """Fused kernels: Liger's, the fused loss, Axolotl's LoRA kernels, torch.compile."""
    own = front.own
    plugins = str(own.raw("plugins") or "")
    if "liger" in plugins.lower():
        _liger(front)
    cut = own.flag("cut_cross_entropy")
    if cut or (cut is None and "cut_cross_entropy" in plugins):
        where = own.where("cut_cross_entropy", "plugins")
        front.piece.give("stack.loss", "fused-linear", where)
        front.uncounted("cut_cross_entropy", f"{where} (read as a fused head and loss)", Direction.EITHER)
    elif own.flag("chunked_cross_entropy"):
        front.piece.give("stack.loss", "full", own.where("chunked_cross_entropy"))
        front.uncounted("chunked_cross_entropy", own.where("chunked_cross_entropy"), Direction.EITHER)
    if own.raw("torch_compile") == AUTO:
        front.hand("torch_compile", True, "torch_compile")
    else:
        front.same(("torch_compile", "torch_compile"))
    _lora_kernels(front)


def _liger(front: FrontEnd) -> None:
    """Liger's kernels, each turned on by a key of its own. The plan has them all or none."""
    own, parts = front.own, {}
    for argument, names in LIGER:
        parts[argument] = bool(own.flag(*names))
    layers = [parts[name] for name in ("rope", "rms_norm", "swiglu")]
    own_keys = ("liger_rms_norm", "liger_glu_activation", "liger_swiglu", "liger_rope", "plugins")
    if any(layers):
        front.hand("use_liger_kernel", True, *own_keys)
        front.hand("liger_kernel_config", parts, *own_keys)
        if not all(layers):
            front.uncounted("liger (some of its kernels)", own.where(*own_keys), Direction.LOW)
    elif parts["fused_linear_cross_entropy"]:
        front.piece.give("stack.loss", "fused-linear", own.where("liger_fused_linear_cross_entropy"))
    if parts["cross_entropy"]:
        front.uncounted("liger_cross_entropy", own.where("liger_cross_entropy"), Direction.HIGH)


def _lora_kernels(front: FrontEnd) -> None:
    """Axolotl's own LoRA kernels keep less for backward; they are on by themselves where nothing forbids them."""
    own = front.own
    on = next((name for name in LORA_KERNELS if own.flag(name)), "")
    if on:
        front.uncounted(on, own.where(on), Direction.HIGH)
        return
    given = any(own.has(name) for name in LORA_KERNELS)
    barred = own.raw("rl") or own.flag("load_in_8bit") or own.flag("trust_remote_code")
    old_fsdp = own.has("fsdp", "fsdp_config") and not _second(front)
    dropout = not at_least(front.version, ANY_DROPOUT.version) and own.raw("lora_dropout") != 0
    if not own.has("adapter") or given or barred or old_fsdp or dropout:
        return
    if at_least(front.version, KERNELS_ON.version):
        where = f"{own.where('adapter')} (on by itself; lora_mlp_kernel: false turns it off)"
        front.uncounted(LORA_KERNELS[0], where, Direction.HIGH)


def _second(front: FrontEnd) -> bool:
    own, inner = front.own, front.own.below("fsdp_config")
    return FSDP2 in (own.whole("fsdp_version"), inner.whole("fsdp_version", "version"))


def recompute(front: FrontEnd) -> None:
    """Recompute, and what of it goes to the host."""
    own = front.own
    raw, kwargs = own.raw("gradient_checkpointing"), own.mapping("gradient_checkpointing_kwargs")
    word = raw if isinstance(raw, str) and raw in OFFLOAD_WORDS else ""
    if word:
        front.hand("gradient_checkpointing", True, "gradient_checkpointing")
    elif raw is None:
        front.fill(AXOLOTL_FILLED, "gradient_checkpointing")
    else:
        front.hand("gradient_checkpointing", own.flag("gradient_checkpointing"), "gradient_checkpointing")
    if word or own.raw("activation_offloading"):
        name = "gradient_checkpointing" if word else "activation_offloading"
        # newer releases offload every activation of an adapter's run and recompute nothing
        instead = at_least(front.version, OFFLOADS.version) and own.has("adapter")
        front.uncounted(name, own.where(name), Direction.EITHER if instead else Direction.HIGH)
    if own.raw("selective_checkpointing"):
        front.uncounted("selective_checkpointing", own.where("selective_checkpointing"), Direction.LOW)
    on = word or own.flag("gradient_checkpointing")
    if kwargs:
        front.hand("gradient_checkpointing_kwargs", kwargs, "gradient_checkpointing_kwargs")
    elif on:
        front.fill(AXOLOTL_FILLED, "gradient_checkpointing_kwargs")


def settled_dtypes(front: FrontEnd) -> None:
    """What Axolotl's loader casts: norms, embeddings and the head go to float32 and, for an adapter, FSDP, a kernel of
    flash attention or a cut loss, back again."""
    own, piece = front.own, front.piece
    if own.flag("fp32_norms"):
        piece.give("precision.norms", "fp32", own.where("fp32_norms"))
    kept = own.has("adapter", "fsdp", "fsdp_config") or "cut_cross_entropy" in str(own.raw("plugins"))
    kernel = piece.given.get("stack.attention")
    if kept or (kernel is not None and kernel.value not in ("sdpa", "eager")):
        return
    if front.args["dtype"].value != "float32" and not own.has("deepspeed"):
        where = f"{own.where('base_model')} (norms, embeddings and head are float32 without flash attention)"
        front.uncounted("base_model", where, Direction.LOW)
