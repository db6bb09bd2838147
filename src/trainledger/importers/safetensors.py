"""The dtype that a folder's weights are stored in, from the header of a safetensors file; no weight is read."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from math import prod

from trainledger.base.problems import InputError
from trainledger.facts.import_peft import HEADER, SAFE
from trainledger.facts.limits import CONFIG_FILE
from trainledger.importers.json_text import parse_json

_ENDING = ".safetensors"


def stored_dtype(folder: str) -> str:
    """The dtype (fp32, bf16, fp16) that most elements of the first file have; empty where there is none to read, or
    most are of another kind."""
    with suppress(OSError, InputError, UnicodeDecodeError, ValueError):
        names = sorted(name for name in os.listdir(folder or ".") if name.endswith(_ENDING))
        if names and not names[0].startswith("adapter"):
            return _most(_header(os.path.join(folder, names[0])))
    return ""


def _header(path: str) -> dict[str, object]:
    with open(path, "rb") as stream:
        size = int.from_bytes(stream.read(HEADER), "little")
        text = stream.read(size).decode("utf-8") if 0 < size <= CONFIG_FILE.value else ""
    data = parse_json(text, path).data
    return data if isinstance(data, dict) else {}


def _most(header: dict[str, object]) -> str:
    elements: Counter[str] = Counter()
    for entry in header.values():
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if isinstance(entry, dict) and isinstance(shape, list) and all(type(one) is int for one in shape):
            elements[str(entry.get("dtype"))] += prod(shape)
    return SAFE.get(elements.most_common(1)[0][0], "") if elements else ""
