"""Megatron's arguments to the keys of a plan's model (`megatron-gpt`)."""

from __future__ import annotations

import ast
from typing import Any

from trainledger.base.problems import InputError
from trainledger.facts.import_megatron import ACTS, DROPOUTS, LATENT_RANKS, SHAPED, SIZES, SWITCHES
from trainledger.facts.import_megatron_defaults import (
    DEFAULT_TOKENIZER,
    NULL_IS_EXACT,
    NULL_TOKENIZERS,
    SHAPES,
    VOCABULARIES,
)
from trainledger.facts.limits import VALUES
from trainledger.facts.megatron import FAMILY
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.facts.option_row import Direction
from trainledger.importers.draft import Uncounted
from trainledger.importers.piece import Piece
from trainledger.importers.settings import Settings

LAYERS = ("--num-layers", "--encoder-num-layers")
NEEDED = ("--hidden-size", "--num-attention-heads")
FROM_CHECKPOINT = "--use-checkpoint-args reads them from a checkpoint: write them beside it"


def layers_of(given: Settings) -> int | None:
    """The number of layers; None where it is left out or broken."""
    return next((given.whole(name) for name in LAYERS if given.said(name)), None)


def give_model(given: Settings, piece: Piece, release: str) -> None:
    """Say the model's keys, and what is missing or of another kind than a GPT."""
    where = next((given.where(name) for name in (*LAYERS, *NEEDED) if given.has(name)), piece.name)
    piece.give("model.model_type", FAMILY, where)
    _size(given, piece)
    _layers(given)
    _words(given)
    _attention(given)
    _experts(given)
    _vocabulary(given, piece, release)


def _size(given: Settings, piece: Piece) -> None:
    """Layers, hidden size, heads: what every model needs."""
    for names, path in (
        ((LAYERS), "num_hidden_layers"),
        (NEEDED[:1], "hidden_size"),
        (NEEDED[1:], "num_attention_heads"),
    ):
        name = next((one for one in names if given.said(one)), "")
        if not name:
            fix = FROM_CHECKPOINT if given.has("--use-checkpoint-args") else ""
            piece.refuse(names[0], "missing", "every model needs it", fix, piece.name)
        else:
            given.give(f"model.{path}", given.whole(name), name)
    for name, path in SIZES:
        if given.has(name):
            given.give(f"model.{path}", given.whole(name), name)


def _layers(given: Settings) -> None:
    """The dense feed-forward's width."""
    hidden = given.whole("--hidden-size") if given.has("--hidden-size") else None
    if given.has("--ffn-hidden-size"):
        given.give("model.intermediate_size", given.whole("--ffn-hidden-size"), "--ffn-hidden-size")
    elif hidden is not None:
        width, why = hidden * SHAPES.widening, f"{SHAPES.widening} x --hidden-size"
        if given.has("--swiglu"):
            width = width * SHAPES.gated // SHAPES.parts // SHAPES.multiple * SHAPES.multiple
            why += f" x {SHAPES.gated}/{SHAPES.parts} with --swiglu, a multiple of {SHAPES.multiple}"
        given.piece.fill("model.intermediate_size", width, why, SHAPES.source)


def _words(given: Settings) -> None:
    """What layers are made of: positions, norms, activation, biases, dropouts."""
    rotary = "--use-rotary-position-embeddings"
    if given.has(rotary):
        given.give("model.position_embedding_type", "rope", rotary)
    for name, path in SHAPED:
        if given.has(name) and not (given.has(rotary) and "position" in path):
            given.give(f"model.{path}", given.text(name), name)
    for name, said in (*ACTS, *SWITCHES):
        for path, value in said.items() if given.has(name) else ():
            given.give(f"model.{path}", value, name)
    if given.has("--add-qkv-bias"):
        _query_bias(given)
    for name, path in DROPOUTS:
        if given.values.get(name) is not None:
            given.give(f"model.{path}", given.number(name), name)


def _query_bias(given: Settings) -> None:
    """Biases of queries, keys and values alone: a key of the model, where its family has it."""
    if "add_qkv_bias" in dict(MODEL_TYPES[FAMILY].defaults):
        given.give("model.add_qkv_bias", True, "--add-qkv-bias")
    else:
        given.piece.uncounted.append(Uncounted("--add-qkv-bias", given.where("--add-qkv-bias"), Direction.LOW.value))


def _attention(given: Settings) -> None:
    """Heads, or latents."""
    heads = given.whole("--num-attention-heads") if given.has("--num-attention-heads") else None
    if given.has("--multi-latent-attention"):
        sizes = (SHAPES.kv_rank, SHAPES.straight, SHAPES.turned, SHAPES.value)
        for (name, path), size in zip(LATENT_RANKS, sizes, strict=True):
            if given.has(name):
                given.give(f"model.{path}", given.whole(name), name)
            else:
                given.piece.fill(f"model.{path}", size, f"{name} {size}", SHAPES.source)
        if given.has("--q-lora-rank"):
            given.give("model.q_lora_rank", given.whole("--q-lora-rank"), "--q-lora-rank")
        return
    if given.has("--group-query-attention"):
        groups = given.whole("--num-query-groups") if given.has("--num-query-groups") else 1
        given.give(
            "model.num_key_value_heads",
            groups,
            "--num-query-groups" if given.has("--num-query-groups") else "--group-query-attention",
        )
    elif heads is not None:
        given.piece.fill(
            "model.num_key_value_heads", heads, "one for each head without --group-query-attention", SHAPES.source
        )
    hidden = given.whole("--hidden-size") if given.has("--hidden-size") else None
    if given.has("--kv-channels"):
        given.give("model.head_dim", given.whole("--kv-channels"), "--kv-channels")
    elif hidden is not None and heads is not None:
        if hidden % heads:
            given.refuse(
                "--num-attention-heads", heads, f"it must divide --hidden-size {hidden}", "Or give --kv-channels."
            )
        else:
            given.piece.fill("model.head_dim", hidden // heads, "--hidden-size / --num-attention-heads", SHAPES.source)


def _experts(given: Settings) -> None:
    """The mixture of experts."""
    if not given.has("--num-experts"):
        return
    given.give("model.num_experts", given.whole("--num-experts"), "--num-experts")
    if given.has("--moe-router-topk"):
        given.give("model.num_experts_per_tok", given.whole("--moe-router-topk"), "--moe-router-topk")
    else:
        given.piece.fill("model.num_experts_per_tok", SHAPES.top_k, f"--moe-router-topk {SHAPES.top_k}", SHAPES.source)
    shared = "--moe-shared-expert-intermediate-size"
    if given.has(shared):
        given.give("model.shared_expert_intermediate_size", given.whole(shared), shared)
    if given.has("--moe-ffn-hidden-size"):
        given.give("model.moe_intermediate_size", given.whole("--moe-ffn-hidden-size"), "--moe-ffn-hidden-size")
    elif (dense := given.piece.given.get("model.intermediate_size")) is not None:
        given.piece.fill("model.moe_intermediate_size", dense.value, "--ffn-hidden-size", SHAPES.source)
    elif "model.intermediate_size" in given.piece.filled:
        width = given.piece.filled["model.intermediate_size"].value
        given.piece.fill("model.moe_intermediate_size", width, "the dense layers' width", SHAPES.source)
    _frequency(given)


def _frequency(given: Settings) -> None:
    """Which layers have experts: every one in N, or a list, written as a sum of lists times numbers."""
    name = "--moe-layer-freq"
    value, layers = given.values.get(name), layers_of(given)
    if value is None or layers is None:
        return
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    try:
        found = pattern(text, layers)
    except InputError:
        given.refuse(name, text, "a whole number, or a list such as ([0]*3+[1]*5), is needed")
        return
    if isinstance(found, list) and len(found) != layers:
        given.refuse(name, text, f"one entry for each of {layers} layers is needed")
        return
    dense = next((at for at, one in enumerate(found) if one), layers) if isinstance(found, list) else 0
    if isinstance(found, list) and all(found[dense:]):
        if dense:
            given.give("model.first_k_dense_replace", dense, name)
    elif found != 1:
        given.give("model.moe_layer_freq", found, name)


def pattern(text: str, layers: int) -> int | list[int]:
    """The value of an expression of lists of 0 and 1, sums and products, at most `layers` entries long.

    Raises InputError for anything else; nothing is executed.
    """
    try:
        body = ast.parse(text.strip().strip("\"'"), mode="eval").body
        return _value(body, min(layers, VALUES.value))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError([]) from None


def _value(node: ast.expr, most: int) -> int | list[int]:
    if isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= most:
        return node.value
    if isinstance(node, ast.List):
        return [_number(_value(one, most)) for one in node.elts]
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, most), _value(node.right, most)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return _bounded(len(left) + len(right), most, left, right)
        if isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int):
            return _bounded(len(left) * right, most, *([left] * right))
    raise InputError([])


def _bounded(length: int, most: int, *parts: list[int]) -> list[int]:
    if length > most:
        raise InputError([])
    return [entry for part in parts for entry in part]


def _number(value: int | list[int]) -> int:
    if isinstance(value, list) or value > 1:
        raise InputError([])
    return value


def _vocabulary(given: Settings, piece: Piece, release: str) -> None:
    """The vocabulary as it is padded: to a multiple of --make-vocab-size-divisible-by x tp."""
    if given.has("--padded-vocab-size"):
        given.give("model.vocab_size", given.whole("--padded-vocab-size"), "--padded-vocab-size")
        return
    found = _tokens(given, piece, release)
    tp = (given.whole("--tensor-model-parallel-size") if given.has("--tensor-model-parallel-size") else None) or 1
    every = "--make-vocab-size-divisible-by"
    each = (given.whole(every) if given.has(every) else None) or SHAPES.padding
    if found is None:
        return
    size, why, name = found
    whole = any(given.has(one) for one in ("--no-pad-vocab-size", "--disable-pad-vocab-size"))
    unit = 1 if whole else each * tp
    padded = (size + unit - 1) // unit * unit
    why += "" if whole else f", padded to a multiple of {each} x tp {tp}"
    if name:
        piece.give("model.vocab_size", padded, f"{given.where(name)} ({why})")
    else:
        row = VOCABULARIES[given.text("--tokenizer-type") or DEFAULT_TOKENIZER]
        piece.fill("model.vocab_size", padded, why, row.source)


def _tokens(given: Settings, piece: Piece, release: str) -> tuple[int, str, str] | None:
    """Tokens before padding, why, and the argument that says so (empty for a tokenizer that is known)."""
    kind = (given.text("--tokenizer-type") if given.has("--tokenizer-type") else None) or DEFAULT_TOKENIZER
    size = given.whole("--vocab-size") if given.has("--vocab-size") else None
    extra = (given.whole("--vocab-extra-ids", 0) if given.has("--vocab-extra-ids") else None) or 0
    if size is not None and kind in NULL_TOKENIZERS and not NULL_IS_EXACT.holds(release):
        return size + 1, f"{size} and the end of a document", "--vocab-size"
    if size is not None:
        return size, f"{size} tokens", "--vocab-size"
    if kind in VOCABULARIES:
        row = VOCABULARIES[kind]
        return row.size + extra, f"{kind}: {row.size} tokens", ""
    model = given.text("--tokenizer-model") if given.has("--tokenizer-model") else None
    known = _catalogued(model)
    if known is not None:
        return known, f"{known} tokens of {model}", "--tokenizer-model"
    if given.values.get("--vocab-size") is None:
        found = f"left out, and {kind} is not a tokenizer whose size is known"
        piece.refuse("--vocab-size", found, "the model's vocabulary is needed", "Add --vocab-size N.", piece.name)
    return None


def _catalogued(model: str | None) -> int | None:
    """The vocabulary of a model of the catalogue, by a tokenizer's name such as meta-llama/Meta-Llama-3-8B."""
    from trainledger.facts.catalogue import find_model

    for name in (model, (model or "").rpartition("/")[2]):
        try:
            size: Any = dict(find_model(name).keys()).get("vocab_size") if name else None
        except InputError:
            continue
        if isinstance(size, int):
            return size
    return None
