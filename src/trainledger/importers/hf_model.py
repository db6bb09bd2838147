"""A model's folder as Hugging Face has it: config.json, what its weights are stored in, and its quantisation."""

from __future__ import annotations

import os
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.import_hf_filled import DTYPE_WORDS
from trainledger.facts.import_peft import GROUPED, QUANT_METHODS
from trainledger.facts.import_rows import CERTAIN, LIKELY
from trainledger.facts.limits import CONFIG_FILE
from trainledger.facts.names import CHECKPOINT_DTYPES
from trainledger.importers.arguments import Arguments
from trainledger.importers.document import Document
from trainledger.importers.draft import Unknown
from trainledger.importers.files import read_text
from trainledger.importers.formats import Context
from trainledger.importers.hf_config import model_keys
from trainledger.importers.inputs import Input
from trainledger.importers.json_text import parse_json
from trainledger.importers.model_words import unread
from trainledger.importers.piece import Given, Piece, Rank
from trainledger.importers.safetensors import stored_dtype

CONFIG, ADAPTER, INDEX = "config.json", "adapter_config.json", "model.safetensors.index.json"
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"


def identify(given: Input) -> float:
    """Certain of a folder with a configuration; of a mapping that names a model's type and its code."""
    if given.document is None and given.script is None:
        return CERTAIN if any(os.path.isfile(os.path.join(given.name, one)) for one in (CONFIG, ADAPTER)) else 0
    data = given.data
    if not isinstance(data.get("model_type"), str) or "model" in data or "base_model" in data:
        return 0
    return CERTAIN if isinstance(data.get("architectures"), list) else LIKELY


def extract(given: Input, context: Context) -> Piece:
    """The model's keys, the dtype of its weights and how they are quantised. Raises InputError."""
    piece = Piece("model folder" if given.document is None else "model configuration", given.name, rank=Rank.MODEL)
    if given.document is not None:
        _config(piece, given.data, given.name, os.path.dirname(given.name))
        _misspelt(piece, given.document)
        return piece
    adapter = os.path.join(given.name, ADAPTER)
    if os.path.isfile(adapter):
        piece.files.append((os.path.abspath(adapter), adapter))
    path = os.path.join(given.name, CONFIG)
    if os.path.isfile(path):
        document = parse_json(read_text(path, CONFIG_FILE, "model"), path)
        if not isinstance(document.data, dict):
            raise InputError([Problem("model", f"{path} holds no object", "a config.json is an object")])
        _config(piece, document.data, path, given.name)
        _misspelt(piece, document)
    return piece


def _misspelt(piece: Piece, document: Document) -> None:
    """Keys that may be meant for one that the model's type has: its configuration may hold any others."""
    for key, near in unread({str(key): value for key, value in document.data.items()}, ()):
        piece.unknown.append(Unknown(key, f"{document.where((key,))} {key}", near))


def _config(piece: Piece, data: dict[str, Any], path: str, folder: str) -> None:
    keys, ignored = model_keys(data)
    piece.ignored += [one for one in ignored if one.path != "model.quantization_config"]
    stem = os.path.basename(path).removesuffix(".json")
    place = os.path.basename(os.path.abspath(folder)) if os.path.basename(path) == CONFIG else stem
    name = data.get("_name_or_path") or place or path
    tied = _tied(folder) if "tie_word_embeddings" not in keys else None
    if tied is not None:
        keys = {**keys, "tie_word_embeddings": tied}
    named = keys.get("dtype") or keys.get("torch_dtype")
    stored = "" if named else stored_dtype(folder)
    if stored:  # from_pretrained looks at the weights where the configuration does not say
        keys = {**keys, "dtype": next(word for word, short in CHECKPOINT_DTYPES.items() if short == stored)}
    piece.give("model", {"name": str(name), **keys}, path)
    word = stored or DTYPE_WORDS.get(str(named or "").removeprefix("torch."))
    if word:
        piece.facts["model.dtype"] = Given(word, path)
    quantised = data.get("quantization_config")
    if isinstance(quantised, dict):
        _quantised(piece, {str(key): value for key, value in quantised.items()}, f"{path} quantization_config")


def _tied(folder: str) -> bool | None:
    """Whether the head is the embedding, by the list of weights; None where there is none to tell."""
    path = os.path.join(folder, INDEX)
    if not os.path.isfile(path):
        return None
    data = parse_json(read_text(path, CONFIG_FILE, "model"), path).data
    names = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(names, dict) or not any(str(name).endswith(EMBEDDING) for name in names):
        return None
    return HEAD not in names


def _quantised(piece: Piece, data: dict[str, Any], where: str) -> None:
    """`quantization_config`: bitsandbytes, GPTQ, AWQ and 8-bit or 4-bit floats; others are refused by name."""
    given = Arguments({key: Given(value, where) for key, value in data.items()}, piece)
    method = (given.text("quant_method") or "").lower()
    if method in ("bitsandbytes", "") and given.flag("load_in_4bit", "_load_in_4bit"):
        piece.give("quantization.kind", given.text("bnb_4bit_quant_type") or "fp4", where)
        piece.give("quantization.double", bool(given.flag("bnb_4bit_use_double_quant")), where)
        return
    if method in ("bitsandbytes", "") and given.flag("load_in_8bit", "_load_in_8bit"):
        piece.give("quantization.kind", "int8", where)
        return
    bits = given.whole("bits", "w_bit") or 0
    kind = QUANT_METHODS.get((method, bits)) or QUANT_METHODS.get((method, 0))
    if kind is None:
        named = f"{method or 'no method'}{f' of {bits} bits' if bits else ''}"
        known = ", ".join(sorted({name for name, _ in QUANT_METHODS}))
        piece.refuse("quantization_config", f"found {named}", f"bitsandbytes, {known} can be read", where=where)
        return
    piece.give("quantization.kind", kind, where)
    group = given.whole("group_size", "q_group_size", least=-1)
    if kind in GROUPED and group:
        piece.give("quantization.group_size", group, where)
