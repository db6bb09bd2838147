"""Bounds on what is read: sizes of files, depth of nesting, largest degrees. An input beyond them is refused."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import KB, KIB, MIB

OWN = Source("trainledger's own bound", "far above any published run or file", "2026-08")
HUB = Source("Hugging Face Hub", "largest config.json of a published model is below 1 MiB", "2026-08")


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest value that is accepted. `unit` says of what."""

    value: int
    unit: str
    source: Source


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a peak below which a saving is called small."""

    share: float
    source: Source


SMALL = Share(0.01, Source("trainledger's own bound", "a hundredth of the peak", "2026-11"))
PLAN_FILE = Limit(8 * MIB, "bytes", OWN)
CONFIG_FILE = Limit(8 * MIB, "bytes", HUB)
RECORD_LINE = Limit(8 * MIB, "bytes", OWN)
SNAPSHOT_FILE = Limit(KIB * MIB, "bytes", OWN)
SNAPSHOT_EVENTS = Limit(10 * KIB * KIB, "events", OWN)
NESTING = Limit(64, "levels", OWN)
VALUES = Limit(200 * KB, "values", OWN)
CHOICES = Limit(12, "results of which every choice is tried; of more the densest are taken first", OWN)
MICRO_BATCH = Limit(KIB * KIB, "sequences", OWN)
SEQUENCE = Limit(KIB * KIB * KIB, "tokens", OWN)
ACCUMULATION = Limit(KIB * KIB, "micro-batches", OWN)
SAVES = Limit(KIB * KIB, "checkpoints", OWN)
GLOBAL_BATCH = Limit(KIB * KIB * KIB, "sequences", OWN)
DEGREE = Limit(16 * KIB * KIB, "ranks", OWN)
LAYERS = Limit(KIB * KIB, "layers", OWN)
MODEL_SIZE = Limit(KIB * KIB * KIB, "elements of a model's dimension", OWN)
PARAMETERS = Limit(KIB**6, "parameters", OWN)
GROUP = Limit(KIB * KIB, "weights of a group, or -1 for all inputs", OWN)
RANK = Limit(KIB * KIB, "rank of an adapter", OWN)
HUB_PORT = Limit(443, "port", Source("HTTP over TLS", "RFC 9110, section 4.2.2", "2022-06"))
CONNECT = Limit(3, "seconds", OWN)
LAYOUT = Limit(KIB * KIB, "entries of a pipeline layout", OWN)
SHOWN = Limit(60, "characters of a value in a message", OWN)
SHELL_NUMBER = Limit(2**63 - 1, "a shell's number", Source("POSIX shell, arithmetic expansion", "XCU 2.6.4", "2024"))
NAMED_KEYS = Limit(4, "unknown keys that are named beside a verdict", OWN)
SHELLS = Limit(3, "commands within commands", OWN)
