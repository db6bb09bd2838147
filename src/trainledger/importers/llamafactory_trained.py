"""LLaMA-Factory: what is trained and in which dtype, recompute, and optimizers of its own."""

from __future__ import annotations

from trainledger.facts.import_llamafactory import (
    FLOAT32,
    FSDP2,
    GALORE,
    LLAMAFACTORY_FILLED,
    REENTRANT_OFF,
)
from trainledger.facts.option_row import Direction
from trainledger.importers.front_end import FrontEnd

PROJECTED = ("galore", "apollo")
_EIGHT = ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit")


def precision(front: FrontEnd) -> None:
    """Frozen weights are loaded in the dtype that is computed in; what is trained is cast to float32 unless
    `pure_bf16` or BAdam. (DeepSpeed casts once more, and keeps its own float32 copy.)"""
    own = front.own
    pure = own.flag("pure_bf16")
    kept = pure or own.flag("use_badam")
    bf16, fp16 = own.flag("bf16"), own.flag("fp16")
    half = "bfloat16" if bf16 or pure else "float16" if fp16 else "auto"
    name = "pure_bf16" if pure else "bf16" if bf16 else "fp16" if fp16 else "model_name_or_path"
    method = own.text("finetuning_type")
    if method == "full" and not kept:
        front.fill((FLOAT32,))
    else:
        front.hand("dtype", half, name)


def recompute(front: FrontEnd) -> None:
    """Layers are recomputed unless it is turned off; Unsloth's variant keeps their inputs on the host."""
    own = front.own
    if own.flag("disable_gradient_checkpointing"):
        front.hand("gradient_checkpointing", False, "disable_gradient_checkpointing")
        return
    reentrant = own.flag("use_reentrant_gc")
    front.fill(LLAMAFACTORY_FILLED, "gradient_checkpointing")
    if reentrant is not None:
        front.hand("gradient_checkpointing_kwargs", {"use_reentrant": reentrant}, "use_reentrant_gc")
    elif own.below("fsdp_config").whole("fsdp_version", "version") == FSDP2:
        front.fill((REENTRANT_OFF,))
    front.fill(LLAMAFACTORY_FILLED, "gradient_checkpointing_kwargs")
    if own.flag("use_unsloth_gc"):
        front.uncounted("use_unsloth_gc", own.where("use_unsloth_gc"), Direction.HIGH)


def optimizer(front: FrontEnd) -> None:
    """GaLore, APOLLO, BAdam and Muon, which LLaMA-Factory makes itself."""
    own = front.own
    for kind in PROJECTED:
        if own.flag(f"use_{kind}"):
            _projected(front, kind)
    if own.flag("use_badam"):
        front.piece.give("optimizer.name", "badam", own.where("use_badam"))
    if own.flag("use_muon"):
        front.piece.give("optimizer.name", "muon", own.where("use_muon"))


def _projected(front: FrontEnd, kind: str) -> None:
    own, inner = front.own, own_optimizer(front)
    name = {"galore": {"8bit": "galore_adamw_8bit", "adafactor": "galore_adafactor"}.get(inner, "galore_adamw")}
    word = name.get(kind, "apollo_adamw")
    if own.flag(f"{kind}_layerwise"):
        word += "_layerwise"
    front.hand("optim", word, f"use_{kind}")
    target = own.texts(f"{kind}_target") or ["all"]
    front.hand("optim_target_modules", ["all-linear"] if target == ["all"] else target, f"{kind}_target", f"use_{kind}")
    options = {
        "rank": own.whole(f"{kind}_rank", least=1),
        "update_proj_gap": own.whole(f"{kind}_update_interval"),
        "scale": own.number(f"{kind}_scale"),
        "proj_type": own.text(f"{kind}_proj_type"),
        "proj": own.text(f"{kind}_proj"),
        "scale_type": own.text(f"{kind}_scale_type"),
    }
    given = {key: value for key, value in options.items() if value is not None}
    if "rank" in given:
        front.hand("optim_args", given, f"{kind}_rank")
    else:
        front.fill((GALORE,))


def own_optimizer(front: FrontEnd) -> str:
    """Which of GaLore's variants `optim` asks for."""
    word = front.own.text("optim") or ""
    return "8bit" if word in _EIGHT else "adafactor" if word == "adafactor" else ""
