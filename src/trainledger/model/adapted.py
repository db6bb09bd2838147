"""A model with an adapter: linears and embeddings rewritten, modules that are trained whole copied, the rest frozen.

Sources: peft/tuners/tuners_utils.py (check_target_module_exists, _maybe_include_all_linear_layers), peft/utils/other.py
(ModulesToSaveWrapper, get_pattern_key), peft/tuners/lora/layer.py (0.21.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.peft import LORA_KINDS
from trainledger.facts.peft_experts import DEFAULT_SCALE
from trainledger.facts.peft_methods import IMPORTANCE
from trainledger.model.adapter_buffers import frozen_pair, places, scores
from trainledger.model.decoder import weights_of
from trainledger.model.deltas import Layer, delta_of
from trainledger.model.mapped import mapped
from trainledger.model.program import (
    Block,
    Buffer,
    Delta,
    Embed,
    Linear,
    Looped,
    LowRank,
    Model,
    Norm,
    Op,
    Role,
    Router,
    Weight,
    sides,
)
from trainledger.model.stacked import ALL_LINEAR, PARAMETERS, Scaled, folded, meant, named, parameters_of
from trainledger.plan.training import Adapter

COPIED = ("weight", "bias")  # what a module trained whole holds


@dataclass(frozen=True, slots=True)
class Chosen:
    """What an adapter does to a module: whether it adapts it and with which rank, whether its bias is trained, or all
    of it."""

    adapted: bool = False
    rank: int = 0
    bias: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Method:
    """An adapter of modules as the plan gives it: where it goes and what it adds there."""

    kind: str
    targets: str | tuple[str, ...]
    rank: int
    dtype: DType
    dropout: float
    release: str
    extra: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    heads: bool = False
    scores: bool = True

    def of(self, path: str, spec: object, output: bool = False) -> Chosen:
        """What is done to the module of this full path. `output`: it makes the logits."""
        if self._whole(path):
            return Chosen(whole=True)
        if self.kind == "ln-tuning":
            return Chosen(whole=isinstance(spec, Norm) and named(path, self.targets))
        every = self.options.get("bias") == "all"
        if not isinstance(spec, Linear | Embed) or not self._fits(path, spec, output):
            return Chosen(bias=every)
        return Chosen(True, self._rank(path), bias=every or self.options.get("bias") == "lora_only")

    def _whole(self, path: str) -> bool:
        """Whether the module, or one around it, is trained whole: PEFT asks for the end of a path, be it part of a
        name (`norm` is every norm's).

        Source: peft/utils/other.py, _set_trainable (0.21.2).
        """
        parts = path.split(".") if self.extra else []
        return any(".".join(parts[: at + 1]).endswith(self.extra) for at in range(len(parts)))

    def _fits(self, path: str, spec: Linear | Embed, output: bool) -> bool:
        excluded = self.options.get("exclude_modules")
        if excluded and named(path, excluded if isinstance(excluded, str) else tuple(excluded)):
            return False
        if self.targets == ALL_LINEAR:  # with layers it is a front end's list of all
            return isinstance(spec, Linear) and (self.heads or not output) and self._within(path)
        return named(path, self.targets) and self._within(path)

    def _within(self, path: str) -> bool:
        """Whether the module is in one of the layers that are asked for."""
        layers = self.options.get("layers_to_transform")
        if layers is None:
            return True
        number = re.search(r"\.(\d+)\.", path)
        return number is not None and int(number.group(1)) in ([layers] if isinstance(layers, int) else layers)

    def folds(self, layer: str, op: Op) -> tuple[Scaled, ...]:
        """How each of the parameters of an operation in this layer is adapted by itself, or each of its experts' linear
        layers."""
        if isinstance(op.spec, Looped):
            of = [self.of(f"{layer}.{_module(weight)}", Linear(weight)) for weight in op.spec.weights]
            return tuple(Scaled(one.rank) for one in of)
        if isinstance(op.spec, Router) and op.spec.early:
            return (Scaled(self.of(f"{layer}.{op.name}", Linear(op.spec.weight)).rank),)
        names = self.options.get(PARAMETERS) or () if self.kind in LORA_KINDS else ()
        paths = [f"{layer}.{weight.name}" for weight in parameters_of(op)] if names else []
        return tuple(Scaled(self._rank(one), self._alpha(one)) if meant(one, names) else Scaled() for one in paths)

    def _rank(self, path: str) -> int:
        return int(self._pattern("rank_pattern", path, self.rank))

    def _alpha(self, path: str) -> float:
        return float(self._pattern("alpha_pattern", path, self.options.get("lora_alpha") or DEFAULT_SCALE))

    def _pattern(self, option: str, path: str, otherwise: float) -> float:
        patterns = self.options.get(option) or {}
        return next((one for key, one in patterns.items() if re.match(rf"(.*\.)?({key})$", path)), otherwise)


def method_of(given: Adapter, versions: Mapping[str, str], heads: bool = False) -> Method:
    """The plan's adapter in a run of these packages; targets that were left out and have no default are none. `heads`:
    all linear layers are meant with the one that makes the logits, which PEFT leaves out."""
    targets: str | tuple[str, ...] = () if given.targets is None else given.targets
    rank = given.r or 0
    dtype = DTYPES[given.dtype]
    release, scores = versions.get("peft", ""), IMPORTANCE.kept(versions)
    return Method(
        given.kind, targets, rank, dtype, given.dropout, release, given.train_extra, given.options, heads, scores
    )


def adapted(model: Model, method: Method) -> Model:
    """The model with its chosen modules adapted; layers that differ by what is done to them are blocks of their own."""
    prologue = [_op(op, method, method.of(op.name, op.spec)) for op in model.prologue]
    head = [_op(op, method, method.of(op.name, op.spec, "logits" in op.outs)) for op in model.head.ops]
    embeddings = _weights(model.embeddings, model.prologue, prologue)
    rest = _weights(model.head.weights, model.head.ops, head)
    blocks = tuple(one for block in model.blocks for one in _block(block, method))
    ops = replace(model.head, ops=tuple(head), weights=rest)
    made = replace(model, prologue=tuple(prologue), embeddings=embeddings, blocks=blocks, head=ops)
    return replace(made, buffers=(*made.buffers, *_beside(made, method)))


def _beside(model: Model, method: Method) -> Iterable[Buffer]:
    """What a method keeps besides parameters."""
    if method.kind == "vera":
        return frozen_pair(model, method.rank, method.dtype)
    if method.kind == "adalora" and method.scores:
        return scores(model)
    return places(model) if method.kind == "oft" else ()


def _block(block: Block, method: Method) -> Iterable[Block]:
    """The block's layers by what is done to each of their modules."""
    groups: dict[tuple[tuple[Chosen, tuple[Scaled, ...]], ...], list[int]] = {}
    for layer in block.layers:
        at = f"{block.name}.{layer}"
        made = tuple((method.of(f"{at}.{op.name}", op.spec), method.folds(at, op)) for op in block.ops)
        groups.setdefault(made, []).append(layer)
    for made, layers in groups.items():
        ops = tuple(_op(op, method, *one) for op, one in zip(block.ops, made, strict=True))
        weights = _weights(block.weights, block.ops, ops)
        yield replace(block, ops=ops, weights=weights, layers=tuple(layers))


def _op(op: Op, method: Method, chosen: Chosen, folds: tuple[Scaled, ...] = ()) -> Op:
    if isinstance(op.spec, Looped) and any(one.rank for one in folds):
        made = [
            _low_rank(_module(weight), Linear(weight), method, one.rank) if one.rank else None
            for weight, one in zip(op.spec.weights, folds, strict=True)
        ]
        return replace(op, spec=replace(op.spec, adapters=tuple(made)))
    if isinstance(op.spec, Router) and op.spec.early and folds[0].rank:
        low = _low_rank(op.name, Linear(op.spec.weight), method, folds[0].rank)
        return replace(op, spec=replace(op.spec, adapter=low))
    if any(one.rank for one in folds):
        return folded(op, folds, method.dtype, bool(method.options.get("use_rslora")))
    spec = op.spec
    if chosen.whole:
        return mapped(op, lambda weight: _copied(op, weight))
    if chosen.bias and isinstance(spec, Linear | Norm) and spec.bias is not None:
        spec = replace(spec, bias=replace(spec.bias, tuned=True))
    if chosen.adapted and isinstance(spec, Linear | Embed):
        spec = _written(op.name, spec, method, chosen.rank)
    return replace(op, spec=spec) if spec is not op.spec else op


def _module(weight: Weight) -> str:
    """The name of the linear layer that has this weight."""
    return weight.name.removesuffix(".weight")


def _copied(op: Op, weight: Weight) -> Weight:
    """The trained copy of a weight of a module that is trained whole; the original stays, frozen."""
    module, _, own = weight.name.rpartition(".")
    if isinstance(op.spec, Linear | Embed | Norm):  # a tied head's weight has another module's name
        module = op.name
    role = Role.HEAD if isinstance(op.spec, Linear) and weight.role is Role.EMBEDDING else weight.role
    return replace(weight, name=f"{module}.modules_to_save.default.{own}", tied=False, tuned=True, role=role)


def _written(name: str, spec: Linear | Embed, method: Method, rank: int) -> Linear | Embed:
    if method.kind in LORA_KINDS:
        return replace(spec, adapter=_low_rank(name, spec, method, rank))
    if isinstance(spec, Embed):
        return spec
    inner, outer = sides(spec)
    layer = Layer(
        name, outer.size, inner.size, rank, method.dtype, method.kind, method.dropout, method.release, method.options
    )
    return replace(spec, adapter=delta_of(layer))


def _low_rank(name: str, spec: Linear | Embed, method: Method, rank: int) -> LowRank:
    rows = (Axis(Dim.RANK, rank),)
    source, target = ((one,) for one in sides(spec))
    along = "weight" if isinstance(spec, Linear) else "embedding"
    first, second = ("lora_A.default.weight", "lora_B.default.weight")
    if along == "embedding":
        first, second = ("lora_embedding_A.default", "lora_embedding_B.default")

    def made(label: str, dims: Dims) -> Weight:
        return Weight(f"{name}.{label}", dims, dtype=method.dtype, tuned=True)

    return LowRank(
        made(first, (*rows, *source)),
        made(second, (*target, *rows)),
        made("lora_B.default.bias", target) if method.options.get("lora_bias") and isinstance(spec, Linear) else None,
        method.dropout if isinstance(spec, Linear) else 0.0,
        made("lora_magnitude_vector.default.weight", target) if method.kind == "dora" else None,
    )


def _weights(weights: tuple[Weight, ...], before: Iterable[Op], after: Iterable[Op]) -> tuple[Weight, ...]:
    """The weights in the order of their modules: a trained copy after the original, an adapter after what it adapts."""
    order = list(weights)
    for old, new in zip(before, after, strict=True):
        last = _behind(order, old)
        for fold in reversed(new.folds):  # the innermost wrapper stands first
            order[last:last] = fold.weights
            last += len(fold.weights)
        if old.spec == new.spec:
            continue
        if isinstance(new.spec, Looped):
            for weight, low in zip(new.spec.weights, new.spec.adapters, strict=True):
                at = order.index(weight) + 1
                order[at:at] = low.weights if low else ()
            continue
        for was, now in _pairs(old, new):
            if was == now:
                continue
            if was in order and now == replace(was, tuned=True):  # the layer's own bias, trained where it stands
                order[order.index(was)] = now
            elif now not in order:
                order.insert(last, now)
                last += 1
        low = getattr(new.spec, "adapter", None)
        for one in low.weights if isinstance(low, LowRank | Delta) else ():
            if one not in order:
                order.insert(last, one)
                last += 1
    return tuple(order)


def _pairs(old: Op, new: Op) -> Iterable[tuple[Weight, Weight]]:
    """Weights that an operation read, each with what it reads in its place."""
    return zip(weights_of((old,)), weights_of((new,)), strict=True)


def _behind(order: list[Weight], op: Op) -> int:
    """The place after the last of an operation's weights; the end where none of them stands here (a tied head's)."""
    parts = (*(getattr(op.spec, part, None) for part in COPIED), *parameters_of(op))
    own = [order.index(weight) + 1 for weight in parts if weight in order]
    return max(own, default=len(order))
