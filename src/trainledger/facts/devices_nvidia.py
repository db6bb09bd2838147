"""NVIDIA data-centre accelerators."""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.sources import Basis, Source
from trainledger.base.units import GB, GIB, MIB
from trainledger.facts.device_rows import Device, Reading, Row, Share, Tier, at, build, issue, like, near, printed

VENDOR = "NVIDIA"

# Of what nvidia-smi prints, the share that reaches a process: the smallest of H100 (81,008 of 81,559 MiB), H200
# (143,156 of 143,771), B200 (182,631 of 183,359) and RTX PRO 6000 (97,250 of 97,887).
HBM_SHARE = Share(
    81_008, 81_559, Source("derived from nvidia-smi's total by the H100's share", "81,008 MiB visible of 81,559 MiB")
)
# GDDR6 with ECC on loses more: the T4 shows 14,930 of its 15,360 MiB.
GDDR_ECC_SHARE = Share(
    14_930, 15_360, Source("derived from nvidia-smi's total by the T4's share", "14,930 MiB visible of 15,360 MiB")
)
SMI = "of nvidia-smi's total, github.com/modal-labs/modal-client/pull/2797"

P100 = at(16_280, printed("Tesla P100-PCIE-16GB', major=6, minor=0, total_memory=16280MB"))
V100_16 = at(16_130, printed("Tesla V100-SXM2-16GB', major=7, minor=0, total_memory=16130MB"))
V100_32 = near(31.74, issue("liucongg/ChatGLM-Finetuning", 73, "V100 32GB: total capacity 31.74 GiB"))
T4 = Reading(15_655_829_504, Basis.MEASURED, printed("Tesla T4', major=7, minor=5, total_memory=14930MB"))
A10G = at(22_723, printed("_CudaDeviceProperties(name='NVIDIA A10G', total_memory=22723MB"))
A30 = near(23.53, issue("google/RB-Modulation", 5, "A30: total capacity 23.53 GiB"))
A40 = at(45_416, printed("NVIDIA A40', major=8, minor=6, total_memory=45416MB"))
A100_40 = Reading(
    42_298_834_944, Basis.MEASURED, issue("bottlerocket-os/bottlerocket", 3873, "A100-SXM4-40GB: 42298834944 bytes")
)
# 79.14 to 79.25 GiB are seen, by driver; the smallest stands here.
A100_80 = near(79.14, issue("lianqi1008/Control-GIC", 6, "A100 80GB: total capacity 79.14 GiB"))
A800 = near(79.33, issue("hahnyuan/PB-LLM", 3, "A800-80G: total capacity 79.33 GiB"))
L40 = near(44.40, issue("NVlabs/Eagle", 68, "L40: total capacity 44.40 GiB"))
L40S = near(44.42, issue("stepfun-ai/Step-Video-T2V", 8, "L40S: total capacity 44.42 GiB"))
H100_80 = Reading(
    84_942_979_072,
    Basis.MEASURED,
    issue("vllm-project/vllm", 27508, "H100 80GB: total capacity 79.11 GiB; its bytes in run records"),
)
H100_PCIE = at(81_008, printed("NVIDIA H100 PCIe', major=9, minor=0, total_memory=81008MB"))
H200 = at(143_156, printed("NVIDIA H200', major=9, minor=0, total_memory=143156MB"))
H20 = at(97_285, printed("NVIDIA H20', major=9, minor=0, total_memory=97285MB"))
B200 = at(182_631, printed("NVIDIA B200', major=10, minor=0, total_memory=182631MB"))


def _smi(mebibytes: int, text: str) -> Reading:
    """Derived from nvidia-smi's total (MiB), which public repositories print."""
    where = f"text {text!r}; of nvidia-smi's total, the H100's share of 81,008 in 81,559 MiB"
    return replace(HBM_SHARE.of(mebibytes * MIB), source=Source("derived from nvidia-smi's total", where))


L4 = replace(GDDR_ECC_SHARE.of(23_034 * MIB), source=Source("L4: 23,034 MiB in nvidia-smi, the T4's share of it", SMI))

TABLE: tuple[Row, ...] = (
    ("p100-16gb", "sm60", "16 GB HBM2", P100, 732, "Tesla P100 data sheet"),
    ("v100-16gb", "sm70", "16 GB HBM2", V100_16, 900, "Tesla V100 data sheet"),
    ("v100-32gb", "sm70", "32 GB HBM2", V100_32, 900, "Tesla V100 data sheet"),
    ("t4", "sm75", "16 GB GDDR6", T4, 320, "T4 product brief"),
    ("a10", "sm86", "24 GB GDDR6", like(A10G, "A10: the A10G's memory and ECC"), 600, "A10 data sheet"),
    ("a10g", "sm86", "24 GB GDDR6", A10G, 600, "A10G, AWS EC2 G5 instances"),
    ("a16", "sm86", "16 GB GDDR6", GDDR_ECC_SHARE.of(16 * GIB), 200, "A16 data sheet, one of four GPUs"),
    ("a30", "sm80", "24 GB HBM2", A30, 933, "A30 data sheet"),
    ("a40", "sm86", "48 GB GDDR6", A40, 696, "A40 data sheet"),
    ("a100-40gb", "sm80", "40 GB HBM2", A100_40, 1555, "A100 data sheet"),
    ("a100-80gb", "sm80", "80 GB HBM2e", A100_80, 2039, "A100 data sheet, SXM4 80GB"),
    ("a100-80gb-pcie", "sm80", "80 GB HBM2e", like(A100_80, "A100 PCIe: the SXM4's memory"), 1935, "A100 data sheet"),
    ("a800-80gb", "sm80", "80 GB HBM2e", A800, 2039, "A800 data sheet"),
    ("l4", "sm89", "24 GB GDDR6", L4, 300, "L4 data sheet"),
    ("l20", "sm89", "48 GB GDDR6", like(L40, "L20: the L40's memory and ECC"), 864, "L20 data sheet"),
    ("l40", "sm89", "48 GB GDDR6", L40, 864, "L40 data sheet"),
    ("l40s", "sm89", "48 GB GDDR6", L40S, 864, "L40S data sheet"),
    ("h100-80gb", "sm90", "80 GB HBM3", H100_80, 3350, "H100 data sheet, SXM5"),
    ("h100-pcie", "sm90", "80 GB HBM2e", H100_PCIE, 2000, "H100 data sheet, PCIe"),
    ("h100-96gb", "sm90", "96 GB HBM2e", like(H20, "H100 96GB: the H20's 96 GB"), None, "torchtitan, performance.md"),
    ("h100-nvl", "sm90", "94 GB HBM3", _smi(95_830, "NVIDIA H100 NVL, 95830 MiB"), 3938, "H100 NVL data sheet"),
    ("h800-80gb", "sm90", "80 GB HBM3", like(H100_80, "H800: the H100's memory"), 3350, "H800 data sheet"),
    ("h20", "sm90", "96 GB HBM3", H20, 4000, "H20 data sheet"),
    ("h20-141gb", "sm90", "141 GB HBM3e", like(H200, "H20 141GB: the H200's memory"), 4800, "H20 data sheet"),
    ("h200", "sm90", "141 GB HBM3e", H200, 4800, "H200 data sheet"),
    ("h200-nvl", "sm90", "141 GB HBM3e", like(H200, "H200 NVL: the H200's memory"), 4800, "H200 data sheet"),
    ("gh200-96gb", "sm90", "96 GB HBM3", like(H20, "GH200 96GB: the H20's 96 GB"), 4000, "GH200 data sheet"),
    ("gh200-144gb", "sm90", "144 GB HBM3e", like(H200, "GH200 144GB: the H200's, a lower bound"), 4900,
     "GH200 data sheet"),
    ("b100", "sm100", "192 GB HBM3e", like(B200, "B100: the B200's memory"), 8000, "Blackwell architecture brief"),
    ("b200", "sm100", "180 GB HBM3e", B200, 7672, "B200's bus and clock: github.com/pytorch/ao/pull/4002"),
    ("gb200", "sm100", "186 GB HBM3e", _smi(189_471, "NVIDIA GB200, 189471 MiB"), 8000, "GB200 NVL72 data sheet"),
    ("b300", "sm103", "288 GB HBM3e", _smi(275_040, "NVIDIA B300 SXM6 AC, 275040 MiB"), 8000, "HGX B300 data sheet"),
    ("gb300", "sm103", "288 GB HBM3e", _smi(284_208, "NVIDIA GB300, 284208 MiB"), 8000, "GB300 NVL72 data sheet"),
    ("gb300-station", "sm103", "252 GB HBM3e", _smi(256_703, "NVIDIA GB300, 256,703 MiB"), 7100,
     "DGX Station data sheet"),
    ("gb10", "sm121", "128 GB LPDDR5X", Reading(
        128 * GB, Basis.ASSUMED, Source("label in decimal units; shared with the host", "DGX Spark data sheet")), 273,
     "DGX Spark data sheet"),
)  # fmt: skip

ALIASES: dict[str, tuple[str, ...]] = {
    "a100-80gb": ("a100-sxm-80gb",),
    "a100-80gb-pcie": ("a100-pcie-80gb",),
    "a800-80gb": ("a800",),
    "h100-80gb": ("h100-sxm", "h100-sxm-80gb", "h100-80gb-sxm"),
    "h100-pcie": ("h100-pcie-80gb", "h100-80gb-pcie"),
    "h100-nvl": ("h100-nvl-94gb",),
    "h800-80gb": ("h800",),
    "h20": ("h20-96gb",),
    "h20-141gb": ("h20-3e",),
    "h200": ("h200-141gb",),
    "gh200-96gb": ("gh200-480gb",),  # the name the driver prints: 480 GB is the host's memory
    "p100-16gb": ("p100", "p100-pcie-16gb"),
    "v100-16gb": ("v100-pcie-16gb",),
    "v100-32gb": ("v100-pcie-32gb",),
    "b200": ("b200-180gb",),
    "b300": ("b300-sxm-ac",),
    "gb10": ("dgx-spark",),
}

# Grace memory over NVLink-C2C, 450 GB/s each way (GH200 and GB200 data sheets: 900 GB/s both ways); two GPUs of
# a GB200 or GB300 superchip share one Grace.
HOST_TIERS: dict[str, Tier] = {
    "gh200-96gb": Tier("Grace memory", 480 * GB, 450 * GB),
    "gh200-144gb": Tier("Grace memory", 480 * GB, 450 * GB),
    "gb200": Tier("Grace memory", 480 * GB, 450 * GB, 2),
    "gb300": Tier("Grace memory", 480 * GB, 450 * GB, 2),
}


def _with_extras(device: Device) -> Device:
    host = HOST_TIERS.get(device.name)
    return replace(
        device,
        aliases=ALIASES.get(device.name, ()),
        tiers=(*device.tiers, host) if host else device.tiers,
    )


NVIDIA_DEVICES: tuple[Device, ...] = tuple(_with_extras(device) for device in build(VENDOR, TABLE))
