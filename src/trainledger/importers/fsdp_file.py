"""The Trainer's `fsdp_config` in a file of its own, which `--fsdp_config` names."""

from __future__ import annotations

from trainledger.facts.import_accelerate import FSDP_FILE_KEYS, FSDP_FILE_SIGNS
from trainledger.facts.import_rows import LIKELY
from trainledger.importers.arguments import Arguments
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.hf_fsdp import TRAINER, fsdp_keys, no_xla
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.piece import Given, Piece


def identify(given: Input) -> float:
    """Likely where every key is one of FSDP's settings, or most are."""
    keys = set(given.data)
    known = keys & {row.name for row in FSDP_FILE_KEYS}
    return LIKELY if keys & set(FSDP_FILE_SIGNS) and len(known) >= len(keys - known) else 0


def extract(given: Input, context: Context) -> Piece:
    """What the file says; that FSDP runs at all, and with which words, is the Trainer's to say."""
    piece = Piece("Trainer's FSDP configuration", given.name)
    keyed = Keyed(given.document or Document({}, {}), FSDP_FILE_KEYS, piece)
    inner = {name.removeprefix("fsdp_"): Given(value, keyed.where(name)) for name, value in keyed.data().items()}
    no_xla(inner, piece)
    piece.facts[TRAINER] = Given(True, piece.name)
    fsdp_keys(Arguments(inner, piece), piece.name)
    keyed.finish()
    return piece
