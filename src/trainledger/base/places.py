"""Where a tensor can lie."""

from __future__ import annotations

from enum import StrEnum


class Place(StrEnum):
    """A kind of memory, nearest to the cores first. HOST is a node's RAM; REMOTE is reached over a network."""

    ON_CHIP = "on-chip"
    DEVICE = "device"
    HOST = "host"
    NVME = "nvme"
    REMOTE = "remote"
