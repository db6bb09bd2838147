"""AMD, Intel and Google accelerators."""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.sources import Basis, Source
from trainledger.base.units import GB, GIB, MIB
from trainledger.facts.device_rows import Device, Reading, Row, at, build, issue, like, near, printed

MI250X = at(65_520, printed("AMD Instinct MI250X', major=9, minor=0, gcnArchName='gfx90a:sramecc+:xnack-'"))
MI300X = at(196_592, Source("MI300X: total_memory=196592MB", "github.com/ROCm/ROCm/issues/4203"))
MI355X = near(287.98, issue("pytorch/pytorch", 175431, "AMD Instinct: GPU 7 has a total capacity of 287.98 GiB"))
RX_7900_XTX = at(24_560, printed("Radeon RX 7900 XTX', major=11, minor=0, gcnArchName='gfx1100', total_memory=24560MB"))
# Every AMD card read so far shows its label in GiB less 16 MiB: 65,520, 196,592 and 24,560 MiB.
AMD_HELD_BACK = 16 * MIB
GAUDI2 = near(94.62, printed('"total_memory_available (GB)": 94.62'))


def _amd(gibibytes: int) -> Reading:
    source = Source("label in GiB less 16 MiB, as MI250X, MI300X and RX 7900 XTX show", MI300X.source.where)
    return Reading(gibibytes * GIB - AMD_HELD_BACK, Basis.ASSUMED, source)


def _label(gigabytes: int) -> Reading:
    """The label in decimal units: a lower bound where nobody printed what a process sees."""
    return Reading(gigabytes * GB, Basis.ASSUMED, Source("label in decimal units, a lower bound", "data sheet"))


AMD_TABLE: tuple[Row, ...] = (
    ("mi100", "gfx908", "32 GB HBM2", _amd(32), 1229, "Instinct MI100 data sheet"),
    ("mi210", "gfx90a", "64 GB HBM2e", _amd(64), 1638, "Instinct MI210 data sheet"),
    ("mi250", "gfx90a", "64 GB HBM2e, one of two GCDs", like(MI250X, "the MI250X's GCD"), 1638,
     "Instinct MI250 data sheet, 3.2 TB/s for both"),
    ("mi250x", "gfx90a", "64 GB HBM2e, one of two GCDs", MI250X, 1638, "Instinct MI250X data sheet, 3.2 TB/s for both"),
    ("mi300a", "gfx942", "128 GB HBM3, shared with the host", _amd(128), 5300, "Instinct MI300A data sheet"),
    ("mi300x", "gfx942", "192 GB HBM3", MI300X, 5300, "Instinct MI300X data sheet"),
    ("mi308x", "gfx942", "192 GB HBM3", like(MI300X, "the MI300X's memory"), 5300, "Instinct MI308X data sheet"),
    ("mi325x", "gfx942", "256 GB HBM3e", _amd(256), 6000, "Instinct MI325X data sheet"),
    ("mi350x", "gfx950", "288 GB HBM3e", like(MI355X, "the MI355X's memory"), 8000, "Instinct MI350X data sheet"),
    ("mi355x", "gfx950", "288 GB HBM3e", MI355X, 8000, "Instinct MI355X data sheet"),
    ("w7800", "gfx1100", "32 GB GDDR6", _amd(32), 576, "Radeon PRO W7800 data sheet"),
    ("w7900", "gfx1100", "48 GB GDDR6", _amd(48), 864, "Radeon PRO W7900 data sheet"),
    ("rx7900xt", "gfx1100", "20 GB GDDR6", _amd(20), 800, "Radeon RX 7900 XT specifications"),
    ("rx7900xtx", "gfx1100", "24 GB GDDR6", RX_7900_XTX, 960, "Radeon RX 7900 XTX specifications"),
    ("rx9070xt", "gfx1201", "16 GB GDDR6", _amd(16), 640, "Radeon RX 9070 XT specifications"),
    ("r9700", "gfx1201", "32 GB GDDR6", _amd(32), 640, "Radeon AI PRO R9700 specifications"),
)  # fmt: skip

INTEL_TABLE: tuple[Row, ...] = (
    ("gaudi1", "gaudi", "32 GB HBM2", _label(32), 1000, "Gaudi architecture overview"),
    ("gaudi2", "gaudi2", "96 GB HBM2e", GAUDI2, 2450, "Gaudi 2 white paper"),
    ("gaudi3", "gaudi3", "128 GB HBM2e", _label(128), 3700, "Gaudi 3 white paper"),
    ("max-1100", "pvc", "48 GB HBM2e", _label(48), 1229, "Data Center GPU Max 1100 specifications"),
    ("max-1550", "pvc", "64 GB HBM2e, one of two tiles", _label(64), 1638,
     "Data Center GPU Max 1550 specifications, 3.2 TB/s for both"),
    ("arc-a770-16gb", "dg2", "16 GB GDDR6", _label(16), 560, "Arc A770 specifications"),
    ("arc-b580", "bmg", "12 GB GDDR6", _label(12), 456, "Arc B580 specifications"),
    ("arc-pro-b60", "bmg", "24 GB GDDR6", _label(24), 456, "Arc Pro B60 specifications"),
)  # fmt: skip

GOOGLE_TABLE: tuple[Row, ...] = (
    ("tpu-v4", "tpu-v4", "32 GB HBM2", _label(32), 1200, "Cloud TPU v4, cloud.google.com/tpu/docs/v4"),
    ("tpu-v5e", "tpu-v5e", "16 GB HBM2", _label(16), 819, "Cloud TPU v5e, cloud.google.com/tpu/docs/v5e"),
    ("tpu-v5p", "tpu-v5p", "95 GB HBM2e", _label(95), 2765, "Cloud TPU v5p, cloud.google.com/tpu/docs/v5p"),
    ("tpu-v6e", "tpu-v6e", "32 GB HBM", _label(32), 1600, "Cloud TPU v6e, cloud.google.com/tpu/docs/v6e"),
    ("tpu-v7", "tpu-v7", "192 GB HBM", _label(192), 7370, "Cloud TPU7x, cloud.google.com/tpu/docs/tpu7x"),
)

ALIASES: dict[str, tuple[str, ...]] = {
    "mi250x": ("mi250x-gcd",),
    "mi250": ("mi250-gcd",),
    "gaudi1": ("gaudi", "hl-205"),
    "gaudi2": ("hl-225",),
    "gaudi3": ("hl-325",),
    "max-1550": ("data-center-gpu-max-1550",),
    "max-1100": ("data-center-gpu-max-1100",),
    "w7900": ("pro-w7900",),
    "w7800": ("pro-w7800",),
    "tpu-v6e": ("trillium",),
    "tpu-v7": ("tpu7x", "ironwood"),
}

OTHER_DEVICES: tuple[Device, ...] = tuple(
    replace(device, aliases=ALIASES.get(device.name, ()))
    for vendor, table in (("AMD", AMD_TABLE), ("Intel", INTEL_TABLE), ("Google", GOOGLE_TABLE))
    for device in build(vendor, table)
)
