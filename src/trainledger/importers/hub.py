"""A model's config.json from the Hugging Face Hub, with the `hub` extra and a network or a filled cache."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from urllib.parse import urlsplit

from trainledger.base.problems import InputError, Problem
from trainledger.facts.limits import CONNECT, HUB_PORT

_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def is_hub_id(name: str) -> bool:
    """Whether a name has the form of a Hub id: `organisation/model`."""
    return _ID.fullmatch(name) is not None


def config_path(name: str, key: str = "model") -> str:
    """The path of the model's config.json in the Hub's local cache, fetched if need be.

    Raises InputError when the `hub` extra is not installed, the Hub cannot be reached, or it has no such model.
    """
    try:
        from huggingface_hub import constants, hf_hub_download
    except ImportError:
        raise _refused(
            key, name, "the `hub` extra is not installed", "Install it: pip install 'trainledger[hub]'."
        ) from None
    with suppress(Exception):  # what the cache lacks is fetched
        return str(hf_hub_download(name, "config.json", local_files_only=True))
    if constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT):
        raise _refused(key, name, "the Hub could not be reached", "Give a path to its config.json.")
    try:
        return str(hf_hub_download(name, "config.json"))
    except Exception as error:  # the client raises its own, its HTTP library's and the system's errors
        reason = type(error).__name__
        if reason == "GatedRepoError":
            raise _refused(
                key, name, "the model is gated and access was not granted", "Download its config.json."
            ) from None
        if reason in ("RepositoryNotFoundError", "EntryNotFoundError", "RemoteEntryNotFoundError"):
            raise _refused(
                key, name, "the Hub has no such model, or it has no config.json", "Check the name."
            ) from None
        raise _refused(
            key, name, f"the Hub could not be reached ({reason})", "Give a path to its config.json."
        ) from None


def _reachable(endpoint: str) -> bool:
    """Whether the Hub answers at all: the client itself retries for half a minute. Behind a proxy it is to find out."""
    if any(name.lower() in ("https_proxy", "all_proxy") and value for name, value in os.environ.items()):
        return True
    address = urlsplit(endpoint)
    try:
        socket.create_connection((address.hostname or "", address.port or HUB_PORT.value), CONNECT.value).close()
    except OSError:
        return False
    return True


def _refused(key: str, name: str, found: str, fix: str) -> InputError:
    allowed = "a catalogue name, a path to a config.json, keys in place, or a Hub id that can be fetched"
    return InputError([Problem(key, f"{name}: {found}", allowed, fix)])
