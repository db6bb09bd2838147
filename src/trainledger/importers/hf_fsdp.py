"""FSDP by accelerate's names (without their `fsdp_`), as its own files and the Trainer's `fsdp_config` have them."""

from __future__ import annotations

from collections.abc import Mapping

from trainledger.facts.checkpoints import STATE_DICT_TYPE
from trainledger.facts.import_hf_filled import NO_WRAP
from trainledger.importers.arguments import Arguments
from trainledger.importers.piece import Given, Piece

FULL, GRADIENTS, NONE, HYBRID, HYBRID_GRADIENTS = (
    "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2",
)  # fmt: skip
STRATEGIES = (FULL, GRADIENTS, NONE, HYBRID, HYBRID_GRADIENTS)  # numbered from 1 in old files
OPTIONS = (
    "backward_prefetch",
    "forward_prefetch",
    "use_orig_params",
    "limit_all_gathers",
    "sync_module_states",
)  # of FSDP1
STATES = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")  # numbered from 1 in old files
EFFICIENT = "cpu_ram_efficient_loading"
SAVING = (STATE_DICT_TYPE, EFFICIENT)  # of a run's beginning and of its checkpoints
OWN = "parallel.options"
WRAPPING = ("auto_wrap_policy", "min_num_params")
PREFETCH = ("backward_prefetch", "backward_prefetch_policy")
OFFLOAD = ("offload_params", "cpu_offload")
LAYERS = ("transformer_layer_cls_to_wrap",)
TRANSFORMER_WRAP = "TRANSFORMER_BASED_WRAP"
TRAINER = "fsdp.trainer"  # the fact that the Trainer's own FSDP runs
_WRAPS = (TRANSFORMER_WRAP, "SIZE_BASED_WRAP", "NO_WRAP")


def trainer_fsdp(given: Arguments) -> None:
    """The Trainer's `fsdp` (words, or true) and `fsdp_config`."""
    raw = given.raw("fsdp")
    words = raw if isinstance(raw, list) else str(raw or "").replace(",", " ").split()
    words = [str(word).lower() for word in words]
    if not words or words in (["false"], ["none"], [""]):
        return
    piece, where = given.piece, given.where("fsdp")
    path = given.raw("fsdp_config")
    if isinstance(path, str) and not path.strip().startswith("{"):
        piece.files.append((path, given.where("fsdp_config")))
        inner: dict[str, Given] = {}
    else:
        inner = dict(given.below("fsdp_config").given)
    inner = {name.removeprefix("fsdp_"): one for name, one in inner.items()}
    for name in ("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params"):
        if given.has(name):
            inner[name.removeprefix("fsdp_")] = given.given[name]
    for word in words:
        if word.upper() in STRATEGIES:
            inner.setdefault("sharding_strategy", Given(word.upper(), where))
        elif word == "offload":
            inner["offload_params"] = Given(True, where)
        elif word not in ("auto_wrap", "true", "1", "yes"):
            piece.refuse("fsdp", f"found {word!r}", "full_shard, shard_grad_op, ... are known", where=where)
    no_xla(inner, piece)
    piece.facts[TRAINER] = Given(True, where)
    fsdp_keys(Arguments(inner, piece), where)


def no_xla(inner: Mapping[str, Given], piece: Piece) -> None:
    """Note XLA's FSDP, which has no rule."""
    if inner.get("xla", Given(False, "")).value in (True, "true"):
        piece.refuse("fsdp_config.xla", "given", "XLA's FSDP cannot be estimated", where=inner["xla"].where)


def fsdp_keys(inner: Arguments, where: str) -> None:
    """FSDP's settings into facts and keys; which version runs, and so which strategy, is settled later."""
    piece = inner.piece
    piece.facts["fsdp.on"] = Given(True, where)
    if (version := inner.whole("version", least=1)) is not None:
        piece.facts["fsdp.version"] = Given(version, inner.where("version"))
    _strategy(inner)
    if inner.flag(*OFFLOAD):
        for name in ("params", "optimizer"):
            piece.give(f"offload.{name}", "cpu", inner.where(*OFFLOAD))
    if inner.flag("activation_checkpointing"):
        where = inner.where("activation_checkpointing")
        piece.give("stack.recompute.kind", "full", where)
        piece.give("stack.recompute.reentrant", False, where)
    _wrapping(inner)
    prefetch = inner.text(*PREFETCH)
    if prefetch is not None:
        piece.facts["fsdp.backward_prefetch"] = Given(prefetch.upper(), inner.where(*PREFETCH))
    for name in OPTIONS[1:]:
        flag = inner.flag(name)
        if flag is not None:
            piece.facts[f"fsdp.{name}"] = Given(flag, inner.where(name))
    if (efficient := inner.flag(EFFICIENT)) is not None:
        piece.give(f"{OWN}.{EFFICIENT}", efficient, inner.where(EFFICIENT))
    _state_dict(inner)


def _state_dict(inner: Arguments) -> None:
    """Whether checkpoints are whole or by shards. Old files number the kinds."""
    raw = inner.raw("state_dict_type")
    if raw is None:
        return
    piece, word = inner.piece, str(raw).upper().removeprefix("STATEDICTTYPE.")
    if word.isdigit() and 1 <= int(word) <= len(STATES):
        word = STATES[int(word) - 1]
    if word not in STATES:
        where = inner.where("state_dict_type")
        piece.refuse("fsdp_state_dict_type", f"found {raw!r}", f"one of {', '.join(STATES)}", where=where)
        return
    piece.give(f"{OWN}.{STATE_DICT_TYPE}", word, inner.where("state_dict_type"))


def _strategy(inner: Arguments) -> None:
    """The sharding strategy, and whether weights are freed after their forward. Old files number the strategies; FSDP1
    under the Trainer has the strategy's name in reshard_after_forward."""
    piece, name = inner.piece, "sharding_strategy"
    raw = inner.raw(name)
    after = inner.raw("reshard_after_forward")
    if isinstance(after, str) and after.upper() in STRATEGIES:
        name, raw = "reshard_after_forward", after
    elif after is not None:
        flag = inner.flag("reshard_after_forward")
        if flag is not None:
            piece.facts["fsdp.reshard"] = Given(flag, inner.where("reshard_after_forward"))
    if raw is None:
        return
    word = str(raw).upper().removeprefix("SHARDINGSTRATEGY.").lstrip("_")
    if word.isdigit() and 1 <= int(word) <= len(STRATEGIES):
        word = STRATEGIES[int(word) - 1]
    if word not in STRATEGIES:
        piece.refuse(f"fsdp_{name}", f"found {raw!r}", f"one of {', '.join(STRATEGIES)}", where=inner.where(name))
        return
    piece.facts["fsdp.strategy"] = Given(word, inner.where(name))


def _wrapping(inner: Arguments) -> None:
    piece, trainer = inner.piece, TRAINER in inner.piece.facts
    word = inner.text("auto_wrap_policy")
    least = inner.whole("min_num_params")
    if word is None:
        if least:
            piece.give("parallel.options.auto_wrap_policy", _WRAPS[1], inner.where("min_num_params"))
        elif not trainer:
            piece.fill(NO_WRAP.path, NO_WRAP.value, NO_WRAP.why, NO_WRAP.source)
    elif word.upper() in _WRAPS:
        piece.give("parallel.options.auto_wrap_policy", word.upper(), inner.where("auto_wrap_policy"))
    else:
        allowed = f"one of {', '.join(_WRAPS)}"
        piece.refuse("fsdp_auto_wrap_policy", f"found {word!r}", allowed, where=inner.where("auto_wrap_policy"))
    if least:
        piece.give("parallel.options.min_num_params", least, inner.where("min_num_params"))
