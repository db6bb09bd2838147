"""The contract of `estimate --json`, as JSON Schema."""

from __future__ import annotations

from typing import Any

BYTES: dict[str, Any] = {"type": "integer", "minimum": 0}
TEXT: dict[str, Any] = {"type": "string", "minLength": 1}


def record(**fields: Any) -> dict[str, Any]:
    """An object that has at least these fields."""
    return {"type": "object", "properties": fields, "required": list(fields)}


def array(item: dict[str, Any], least: int = 0) -> dict[str, Any]:
    """A list of such items."""
    return {"type": "array", "items": item, "minItems": least}


BAND = record(low=BYTES, expected=BYTES, high=BYTES)
AMOUNTS = {"allocated": BAND, "active": BAND, "reserved": BAND}
ENTRY = record(
    account=TEXT,
    name=TEXT,
    dims=array(record(name=TEXT, size={"type": "integer", "minimum": 1})),
    dtype=TEXT,
    shards={"type": "integer", "minimum": 1},
    copies={"type": "integer", "minimum": 0},
    bytes=BYTES,
    place={"enum": ["on-chip", "device", "host", "nvme", "remote"]},
    live=array(TEXT, 1),
    basis={"enum": ["counted", "published", "measured", "assumed"]},
    source=TEXT,
    why={"type": "string"},
)
VERDICT = record(
    outcome={"enum": ["fits", "tight", "does-not-fit", None]},
    margin={"type": ["integer", "null"]},
    reasons=array(TEXT, 1),
)
ESTIMATE = record(
    peak=record(**AMOUNTS, device=BAND, moment=TEXT, rank=BYTES, steps=record(**AMOUNTS)),
    states=record(weights=BYTES, gradients=BYTES, master_weights=BYTES, optimizer_states=BYTES),
    moments=array(record(name=TEXT, allocated=BYTES), 1),
    entries=array(ENTRY, 1),
    ranks=array(record(ranks=array(BYTES, 1), allocated=BYTES, moment=TEXT), 1),
    host=record(bytes=BYTES),
    checkpoint=record(bytes=BYTES),
    parameters=record(total=BYTES, trainable=BYTES, active=BYTES),
    verdict=VERDICT,
    draft=record(
        used=array(record(path=TEXT, value={}, where={"type": "string"})),
        defaulted=array(record(path=TEXT, value={}, why=TEXT, source=TEXT)),
        ignored=array(record(path=TEXT, why=TEXT)),
    ),
    notes=array(TEXT),
    global_batch={"type": "integer", "minimum": 1},
    model=record(name=TEXT, model_type=TEXT),
)
