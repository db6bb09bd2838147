"""Prompts that are trained: rows put before the words' own, or keys and values before each layer's, from a table or
through a small network; and rows of the embedding that are trained while the others are not.

Sources: peft/peft_model.py (PeftModelForCausalLM.forward, get_prompt), peft/tuners/{prompt_tuning,p_tuning,
prefix_tuning}/model.py, peft/utils/other.py (_prepare_prompt_learning_config), peft/tuners/trainable_tokens/layer.py
(0.21.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError, Problem
from trainledger.facts.dtypes import DType
from trainledger.model.program import Attention, Embed, Linear, Model, Op, Prefix, Prompts, Tokens, Weight

PROMPT_KINDS = ("prompt-tuning", "p-tuning")
PREFIX_KIND = "prefix-tuning"
PAIR = ("keys", "values")
LAYERS = ("0", "2", "4")  # linears of p-tuning's network, the first of them of a prefix's; functions stand between them


def virtual_tokens(model: Model) -> int:
    """How many tokens of each sequence no id stands for."""
    return next((op.spec.count for op in model.prologue if isinstance(op.spec, Prompts)), 0)


def prefix_of(model: Model) -> Prefix | None:
    """The trained keys and values before each layer's own, where there are any."""
    return next((op.spec for op in model.prologue if isinstance(op.spec, Prefix)), None)


def prefixed(model: Model, dtype: DType, options: Mapping[str, Any]) -> Model:
    """The model with trained keys and values before every layer's own; itself where its layers have no program."""
    specs = [op.spec for block in model.blocks for op in block.ops if isinstance(op.spec, Attention)]
    if not specs:
        return model
    heads = (Axis(Dim.KV_HEADS, specs[0].kv_heads), Axis(Dim.HEAD_DIM, specs[0].head))
    count, copies = int(options.get("num_virtual_tokens") or 0), sum(block.count for block in model.blocks)
    rows, one = Axis(Dim.ROWS, count), Axis(Dim.COLUMNS, specs[0].kv_heads * specs[0].head)
    every = Axis(Dim.COLUMNS, one.size * copies * len(PAIR))

    def made(name: str, *dims: Axis) -> Weight:
        return Weight(f"prompt_encoder.{name}", dims, dtype=dtype, tuned=True)

    layers: tuple[tuple[Weight, Weight], ...] = ()
    if options.get("prefix_projection"):
        wide = Axis(Dim.FFN, int(options.get("encoder_hidden_size") or one.size))
        layers = tuple(
            (made(f"transform.{number}.weight", target, source), made(f"transform.{number}.bias", target))
            for number, (source, target) in zip(LAYERS, ((one, wide), (wide, every)), strict=False)
        )
    table = made("embedding.weight", rows, one if layers else every)
    op = Op("prompt_encoder", Prefix(table, layers, count, heads, copies), (), (), heads)
    weights = (table, *(weight for pair in layers for weight in pair))
    return replace(model, prologue=(op, *model.prologue), embeddings=(*model.embeddings, *weights))


def _embedding(model: Model) -> int:
    """Where the prologue looks words up; InputError for a model that is not a Transformers class."""
    for at, op in enumerate(model.prologue):
        if isinstance(op.spec, Embed):
            return at
    found = f"found {model.family!r}"
    raise InputError([Problem("model.model_type", found, "PEFT's prompts and tokens need a Transformers class")])


def prompted(model: Model, kind: str, dtype: DType, options: Mapping[str, Any]) -> Model:
    """The model with prompts before the words' rows, as they leave the embedding's own module.

    Raises InputError for a model without the embedding of a Transformers class.
    """
    count, hidden = int(options.get("num_virtual_tokens") or 0), model.hidden

    def made(name: str, *dims: Axis) -> Weight:
        return Weight(f"prompt_encoder.{name}", dims, dtype=dtype, tuned=True)

    table = made("embedding.weight", Axis(Dim.ROWS, count), hidden)
    layers: tuple[tuple[Weight, Weight], ...] = ()
    if kind == "p-tuning":
        wide = Axis(Dim.FFN, int(options.get("encoder_hidden_size") or hidden.size))
        sides = ((hidden, wide), (wide, wide), (wide, hidden))
        layers = tuple(
            (made(f"mlp_head.{number}.weight", target, source), made(f"mlp_head.{number}.bias", target))
            for number, (source, target) in zip(LAYERS, sides, strict=True)
        )
    first = _embedding(model)
    name = model.prologue[first].name
    last = max(at for at, op in enumerate(model.prologue) if op.name == name)
    out = model.prologue[last].outs[0]
    ops = [
        replace(op, spec=replace(op.spec, fewer=count)) if at == first and isinstance(op.spec, Embed) else op
        for at, op in enumerate(model.prologue)
    ]
    ops.insert(last + 1, Op("prompt_encoder", Prompts(table, layers, count), (out,), (out, "prompts"), (hidden,)))
    weights = (table, *(weight for pair in layers for weight in pair))
    return replace(model, prologue=tuple(ops), embeddings=(*model.embeddings, *weights))


def with_tokens(model: Model, dtype: DType, options: Mapping[str, Any]) -> Model:
    """The model with some rows of its embedding trained, and the same rows of a head that is tied to it.

    Raises InputError as `prompted` does.
    """
    first = _embedding(model)
    op = model.prologue[first]
    assert isinstance(op.spec, Embed)
    rows = Axis(Dim.ROWS, len(options.get("token_indices") or ()))
    name = f"{op.name}.trainable_tokens_delta.default"
    tokens = Tokens(Weight(name, (rows, *op.spec.weight.dims[1:]), dtype=dtype, tuned=True))
    prologue = list(model.prologue)
    prologue[first] = replace(op, spec=replace(op.spec, adapter=tokens))
    head = tuple(
        replace(one, spec=replace(one.spec, adapter=tokens))
        if isinstance(one.spec, Linear) and one.spec.weight == op.spec.weight
        else one
        for one in model.head.ops
    )
    at = model.embeddings.index(op.spec.weight) + 1
    embeddings = (*model.embeddings[:at], tokens.weight, *model.embeddings[at:])
    return replace(model, prologue=tuple(prologue), embeddings=embeddings, head=replace(model.head, ops=head))


def shared_weights(model: Model) -> frozenset[Weight]:
    """Weights that the head reads again (tied embeddings)."""
    own = set(model.embeddings)
    read = [op.spec for op in model.head.ops if isinstance(op.spec, Linear)]
    rows = [spec.adapter.weight for spec in read if isinstance(spec.adapter, Tokens)]
    return frozenset(weight for weight in (*(spec.weight for spec in read), *rows) if weight in own)
