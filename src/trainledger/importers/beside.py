"""Files that a plan may name besides its model: a device of one's own, and lengths of samples."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.devices import find_device
from trainledger.facts.limits import PLAN_FILE
from trainledger.importers.document import Document
from trainledger.importers.files import read_text
from trainledger.importers.inputs import parse_mapping
from trainledger.importers.lengths_file import lengths_in

ENDINGS = (".yaml", ".yml", ".json", ".toml")


def device_data(name: str, folder: str = "", key: str = "device") -> Any:
    """What a plan's `device` means by a text: the mapping in a file of that name, or the name itself. Raises
    InputError for a file that is none."""
    return _device(name, folder, key).data


def _device(name: str, folder: str, key: str) -> Document:
    """The same with the places of the file's keys."""
    path = _located(name, folder)
    if not name.lower().endswith(ENDINGS) and not os.path.isfile(path):
        return Document(name, {})
    found = parse_mapping(read_text(path, PLAN_FILE, key), path)
    if not isinstance(found.data, dict):
        raise InputError([Problem(key, f"{name}: no mapping", "a file with name, memory, bandwidth, tiers is needed")])
    if "device" not in found.data:
        return found
    inner = found.data["device"]
    if not isinstance(inner, dict):
        return _device(str(inner), os.path.dirname(path), key)
    return Document(inner, {at[1:]: place for at, place in found.places.items() if at[:1] == ("device",)})


def device_set(name: str) -> str:
    """`--device`'s value as a change to the plan. Raises InputError for a name that is no known device's, and for a
    file that is none."""
    data = device_data(name, key="--device")
    if isinstance(data, str):
        try:
            find_device(data)
        except InputError as error:
            raise InputError([replace(one, path="--device") for one in error.problems]) from None
    return f"device={json.dumps(name)}"


def lengths_data(name: str, folder: str = "") -> list[int]:
    """The lengths in a file, as `lengths_in` reads them. Raises InputError for a file that is none, by its lines."""
    path = _located(name, folder)
    return lengths_in(read_text(path, PLAN_FILE, "lengths.file"), path)


def with_files(document: Document, folder: str) -> Document:
    """A plan with what the files hold that it names: those of the plan in its `folder`, those that a command line names
    in the working folder."""
    if not isinstance(document.data, dict):
        return document
    found, places = dict(document.data), dict(document.places)
    if isinstance(found.get("device"), str):
        device = _device(found["device"], document.folder(("device",), folder), "device")
        found["device"] = device.data
        places |= {("device", *at): place for at, place in device.places.items() if at}
    lengths = found.get("lengths")
    own = document.folder(("lengths", "file"), folder)
    if isinstance(lengths, str) and lengths.strip():
        found["lengths"] = {"file": lengths, "values": lengths_data(lengths, own)}
    elif isinstance(lengths, dict) and isinstance(lengths.get("file"), str) and not lengths.get("values"):
        found["lengths"] = {**lengths, "values": lengths_data(lengths["file"], own)}
    return Document(found, places)


def _located(name: str, folder: str) -> str:
    return name if os.path.isabs(name) or not folder else os.path.join(folder, name)
