"""How fast devices compute and reach each other: dense peaks by dtype, links within a node and to the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import GB, TB


@dataclass(frozen=True, slots=True)
class Throughput:
    """One device's published speeds. `peak`, `peak_low`: dense matrix products in 16 and in 8 bits (operations per
    second; 8 bits at the 16-bit peak where there are none). `link`: bytes per second one way to the devices of its
    `domain` (how many share such links); `network`: bytes per second one way to those beyond it."""

    name: str
    peak: float
    peak_low: float
    link: float
    domain: int
    network: float
    source: Source


# name, dense 16-bit and 8-bit TFLOP/s, link in GB/s one way, devices that share such links, network in GB/s one way
Row = tuple[str, float, float, float, int, float, str]
NETWORK = "network as in reference nodes: one adapter a device, 100 to 800 Gb/s by generation"
SHEET = "NVIDIA or AMD data sheets, dense (half of the sparse figure); links one way (half of the sum of both)"

TABLE: tuple[Row, ...] = (
    ("v100-16gb", 125, 125, 150, 8, 12.5, "Tesla V100 data sheet, NVLink 300 GB/s"),
    ("v100-32gb", 125, 125, 150, 8, 12.5, "Tesla V100 data sheet, NVLink 300 GB/s"),
    ("t4", 65, 65, 16, 4, 3.125, "T4 product brief, PCIe 3.0 x16"),
    ("a10", 125, 125, 32, 4, 6.25, "A10 data sheet, PCIe 4.0 x16"),
    ("a10g", 70, 70, 32, 8, 12.5, "A10G, AWS EC2 G5 instances, PCIe 4.0 x16"),
    ("a30", 165, 165, 100, 2, 12.5, "A30 data sheet, NVLink 200 GB/s"),
    ("a40", 149.7, 149.7, 56.25, 2, 12.5, "A40 data sheet, NVLink 112.5 GB/s"),
    ("a100-40gb", 312, 312, 300, 8, 25, "A100 data sheet, NVLink 600 GB/s; DGX A100: 200 Gb/s a device"),
    ("a100-80gb", 312, 312, 300, 8, 25, "A100 data sheet, NVLink 600 GB/s; DGX A100: 200 Gb/s a device"),
    ("a100-80gb-pcie", 312, 312, 32, 8, 25, "A100 data sheet, PCIe 4.0 x16"),
    ("a800-80gb", 312, 312, 200, 8, 25, "A800 data sheet, NVLink 400 GB/s"),
    ("l4", 121, 242, 32, 8, 12.5, "L4 data sheet, PCIe 4.0 x16"),
    ("l40", 181, 362, 32, 8, 25, "L40 data sheet, PCIe 4.0 x16"),
    ("l40s", 362, 733, 32, 8, 25, "L40S data sheet, PCIe 4.0 x16"),
    ("h100-80gb", 989.4, 1978.9, 450, 8, 50, "H100 data sheet, SXM5, NVLink 900 GB/s; DGX H100: 400 Gb/s a device"),
    ("h100-pcie", 756, 1513, 64, 8, 50, "H100 data sheet, PCIe 5.0 x16"),
    ("h100-96gb", 989.4, 1978.9, 450, 8, 50, "H100 data sheet, SXM5"),
    ("h100-nvl", 835.5, 1670.5, 300, 2, 50, "H100 NVL data sheet, NVLink bridge 600 GB/s"),
    ("h800-80gb", 989.4, 1978.9, 200, 8, 50, "DeepSeek-V3 report, section 3.1: NVLink, InfiniBand"),
    ("h20", 148, 296, 450, 8, 50, "H20 data sheet, NVLink 900 GB/s"),
    ("h20-141gb", 148, 296, 450, 8, 50, "H20 data sheet, NVLink 900 GB/s"),
    ("h200", 989.4, 1978.9, 450, 8, 50, "H200 data sheet, NVLink 900 GB/s"),
    ("h200-nvl", 835.5, 1670.5, 450, 4, 50, "H200 NVL data sheet, NVLink bridge 900 GB/s"),
    ("gh200-96gb", 989.4, 1978.9, 450, 32, 50, "GH200 data sheet, NVLink 900 GB/s, NVL32"),
    ("gh200-144gb", 989.4, 1978.9, 450, 32, 50, "GH200 data sheet, NVLink 900 GB/s, NVL32"),
    ("b100", 1750, 3500, 900, 8, 50, "Blackwell architecture brief, NVLink 1.8 TB/s"),
    ("b200", 2250, 4500, 900, 8, 50, "HGX B200 data sheet, NVLink 1.8 TB/s; DGX B200: 400 Gb/s a device"),
    ("gb200", 2500, 5000, 900, 72, 50, "GB200 NVL72 data sheet, NVLink 1.8 TB/s"),
    ("b300", 2250, 4500, 900, 8, 100, "HGX B300 data sheet, NVLink 1.8 TB/s, 800 Gb/s a device"),
    ("gb300", 2500, 5000, 900, 72, 100, "GB300 NVL72 data sheet, NVLink 1.8 TB/s, 800 Gb/s a device"),
    ("rtx3090", 71, 71, 32, 8, 12.5, "GA102 white paper, fp32 accumulation, PCIe 4.0 x16"),
    ("rtx4090", 165.2, 330.3, 32, 8, 12.5, "Ada white paper, fp32 accumulation, PCIe 4.0 x16"),
    ("mi300x", 1307.4, 2614.9, 448, 8, 50, "MI300X data sheet, seven links of 64 GB/s one way"),
)  # fmt: skip
THROUGHPUT: Mapping[str, Throughput] = {
    name: Throughput(name, peak * TB, low * TB, link * GB, domain, network * GB, Source(sheet, f"{SHEET}; {NETWORK}"))
    for name, peak, low, link, domain, network, sheet in TABLE
}
