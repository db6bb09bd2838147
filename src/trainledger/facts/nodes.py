"""Nodes: how many ranks share one, its RAM and NVMe, and how fast these are read and written."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.places import Place
from trainledger.base.sources import Source
from trainledger.base.units import GB, GIB, MB, TB, TIB
from trainledger.facts.device_rows import Tier


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. `ranks` share its tiers: the host's memory first, then NVMe where it has some, then what a network
    leads to. `device`: the catalogue's name of what it carries, empty for a node of one's own."""

    name: str
    ranks: int
    device: str
    tiers: tuple[Tier, ...]
    source: Source

    def tier(self, place: Place) -> Tier | None:
        """The first tier of a place."""
        return next((one for one in self.tiers if one.place is place), None)


def _ddr(transfers: int, channels: int, sockets: int = 2) -> int:
    """Bytes per second of DDR channels: so many million transfers of eight bytes."""
    return transfers * MB * 8 * channels * sockets


# Two EPYC 7742; two Xeon 8480C; two Xeon 8570; two Xeon 6776P; two Xeon E5-2698 v4; two Grace with LPDDR5X.
ROME, SAPPHIRE, EMERALD, GRANITE = _ddr(3200, 8), _ddr(4800, 8), _ddr(5600, 8), _ddr(6400, 8)
BROADWELL = _ddr(2133, 4)
GRACE = 512 * GB


def _node(row: tuple[str, str, int, int | None, int | None], ranks: int, sheet: str, where: str) -> Node:
    """Name, device, bytes of RAM, their bandwidth (None: not published), bytes of NVMe (None: none)."""
    name, device, memory, bandwidth, flash = row
    tiers: tuple[Tier, ...] = (Tier("host memory", memory, bandwidth, ranks),)
    if flash is not None:
        tiers += (Tier("NVMe", flash, None, ranks, Place.NVME),)
    return Node(name, ranks, device, tiers, Source(sheet, where))


DGX = "NVIDIA, product documentation; bandwidth of the processors' memory channels"
AWS, AZURE, GCP = "aws.amazon.com/ec2/instance-types", "learn.microsoft.com/azure/virtual-machines", "cloud.google.com"

_ROWS: tuple[Node, ...] = (
    _node(("dgx-1-v100", "v100-32gb", 512 * GIB, BROADWELL, None), 8, "DGX-1 with V100 data sheet", DGX),
    _node(("dgx-a100-40gb", "a100-40gb", TIB, ROME, 15 * TB), 8, "DGX A100 320GB data sheet", DGX),
    _node(("dgx-a100-80gb", "a100-80gb", 2 * TIB, ROME, 30 * TB), 8, "DGX A100 640GB data sheet", DGX),
    _node(("dgx-h100", "h100-80gb", 2 * TIB, SAPPHIRE, 30 * TB), 8, "DGX H100 data sheet", DGX),
    _node(("dgx-h200", "h200", 2 * TIB, SAPPHIRE, 30 * TB), 8, "DGX H200 data sheet", DGX),
    _node(("dgx-b200", "b200", 2 * TIB, EMERALD, 30 * TB), 8, "DGX B200 data sheet", DGX),
    _node(("dgx-b300", "b300", 2 * TIB, GRANITE, 30 * TB), 8, "DGX B300 data sheet", DGX),
    _node(("gh200", "gh200-96gb", 480 * GB, GRACE, None), 1, "GH200 data sheet", "NVIDIA, product documentation"),
    _node(
        ("gb200-nvl72", "gb200", 960 * GB, GRACE + GRACE, None), 4, "GB200 NVL72 data sheet: a tray of two superchips",
        "NVIDIA, product documentation",
    ),
    _node(
        ("gb300-nvl72", "gb300", 960 * GB, GRACE + GRACE, None), 4, "GB300 NVL72 data sheet: a tray of two superchips",
        "NVIDIA, product documentation",
    ),
    _node(("p3.16xlarge", "v100-16gb", 488 * GIB, None, None), 8, "Amazon EC2 P3", AWS),
    _node(("p3dn.24xlarge", "v100-32gb", 768 * GIB, None, 1800 * GB), 8, "Amazon EC2 P3", AWS),
    _node(("p4d.24xlarge", "a100-40gb", 1152 * GIB, None, 8 * TB), 8, "Amazon EC2 P4", AWS),
    _node(("p4de.24xlarge", "a100-80gb", 1152 * GIB, None, 8 * TB), 8, "Amazon EC2 P4", AWS),
    _node(("p5.48xlarge", "h100-80gb", 2048 * GIB, None, 30_720 * GB), 8, "Amazon EC2 P5", AWS),
    _node(("p5en.48xlarge", "h200", 2048 * GIB, None, 30_720 * GB), 8, "Amazon EC2 P5", AWS),
    _node(("p6-b200.48xlarge", "b200", 2048 * GIB, None, 30_720 * GB), 8, "Amazon EC2 P6", AWS),
    _node(("g5.48xlarge", "a10g", 768 * GIB, None, 7600 * GB), 8, "Amazon EC2 G5", AWS),
    _node(("g6.48xlarge", "l4", 768 * GIB, None, 7520 * GB), 8, "Amazon EC2 G6", AWS),
    _node(("g6e.48xlarge", "l40s", 1536 * GIB, None, 7600 * GB), 8, "Amazon EC2 G6e", AWS),
    _node(("nd96asr-v4", "a100-40gb", 900 * GIB, None, 6000 * GB), 8, "Azure ND A100 v4 series", AZURE),
    _node(("nd96amsr-a100-v4", "a100-80gb", 1900 * GIB, None, 6400 * GB), 8, "Azure NDm A100 v4 series", AZURE),
    _node(("nd96isr-h100-v5", "h100-80gb", 1900 * GIB, None, 28 * TB), 8, "Azure ND H100 v5 series", AZURE),
    _node(("a2-highgpu-8g", "a100-40gb", 680 * GIB, None, None), 8, "Google Cloud A2 machine types", GCP),
    _node(("a2-ultragpu-8g", "a100-80gb", 1360 * GIB, None, 3000 * GB), 8, "Google Cloud A2 machine types", GCP),
    _node(("a3-highgpu-8g", "h100-80gb", 1872 * GIB, None, 6000 * GB), 8, "Google Cloud A3 machine types", GCP),
)  # fmt: skip
NODES: dict[str, Node] = {node.name: node for node in _ROWS}


@dataclass(frozen=True, slots=True)
class Usual:
    """Ranks that share a node where a plan names none."""

    ranks: int
    source: Source


USUAL = Usual(8, Source("eight accelerators on one board", "NVIDIA HGX, AMD Instinct UBB, Intel Gaudi HLB-225"))
