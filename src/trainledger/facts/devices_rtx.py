"""NVIDIA workstation and GeForce cards."""

from __future__ import annotations

from trainledger.base.sources import Basis, Source
from trainledger.base.units import GIB
from trainledger.facts.device_rows import Device, Reading, Row, Share, at, build, issue, like, near, printed

VENDOR = "NVIDIA"

# GeForce cards show 96.5 % (4070, 5060 Ti) to 98.7 % (3090) of their label; the smallest share derives the rest.
GEFORCE = Share(
    15_816,
    16_384,
    issue("Luce-Org/lucebox", 407, "derived by the RTX 5060 Ti's share: 15,816 MiB visible of 16,384 MiB"),
)
# Workstation Ampere and Ada cards with ECC on: the RTX 6000 Ada then shows 44.43 GiB of 48.
WORKSTATION = Share(
    4443, 4800, issue("DINGYANB/MTVCrafter", 21, "derived by the RTX 6000 Ada's share with ECC on: 44.43 of 48 GiB")
)


def _geforce(gibibytes: int) -> Reading:
    return GEFORCE.of(gibibytes * GIB)


def _workstation(gibibytes: int) -> Reading:
    return WORKSTATION.of(gibibytes * GIB)


RTX_2080_TI = at(11_019, printed("GeForce RTX 2080 Ti', major=7, minor=5, total_memory=11019MB"))
RTX_3060 = at(11_931, printed("NVIDIA GeForce RTX 3060', major=8, minor=6, total_memory=11931MB"))
RTX_3090 = at(24_259, printed("NVIDIA GeForce RTX 3090', major=8, minor=6, total_memory=24259MB"))
RTX_4070 = at(11_874, printed("'NVIDIA GeForce RTX 4070' pci=0000:00:07.0 sm_89 smcount=46 totalmem=11874MiB"))
RTX_4070_TI_SUPER = at(15_934, printed("RTX 4070 Ti SUPER', major=8, minor=9, total_memory=15934MB"))
RTX_4080 = at(16_049, printed("NVIDIA GeForce RTX 4080', major=8, minor=9, total_memory=16049MB"))
# 23.52 to 23.65 GiB are seen, by driver; the smallest stands here.
RTX_4090 = near(23.52, issue("Soul-AILab/SoulX-FlashTalk", 5, "RTX 4090: total capacity 23.52 GiB"))
RTX_5060_TI = at(15_816, issue("Luce-Org/lucebox", 407, "RTX 5060 Ti 16 GB: 15,816 MiB visible"))
RTX_5090 = Reading(
    33_677_180_928,
    Basis.MEASURED,
    issue("aikitoria/open-gpu-kernel-modules", 1, "RTX 5090: deviceQuery prints 33677180928 bytes"),
)
RTX_A4000 = near(15.61, issue("DengKaiCQ/VGGT-Long", 6, "RTX A4000: total capacity 15.61 GiB"))
RTX_A5000 = at(24_138, printed("NVIDIA RTX A5000', major=8, minor=6, total_memory=24138MB"))
RTX_A6000 = at(48_676, printed("NVIDIA RTX A6000', major=8, minor=6, total_memory=48676MB"))
# ECC off; 44.43 GiB are left with it on.
RTX_6000_ADA = Reading(
    50_865_307_648,
    Basis.MEASURED,
    issue("unslothai/unsloth-zoo", 1053, "RTX 6000 Ada: device properties and mem_get_info, 50865307648 bytes"),
)
RTX_PRO_6000 = at(97_250, issue("antirez/ds4", 431, "RTX PRO 6000: total 94.97 GiB (97,250 MiB visible of 97,887)"))
TURING_PRO = Source("derived by the RTX 2080 Ti's share: 11,019 MiB visible of 11,264 MiB", RTX_2080_TI.source.where)
TURING = Share(11_019, 11_264, TURING_PRO)

TABLE: tuple[Row, ...] = (
    ("rtx2060-6gb", "sm75", "6 GB GDDR6", _geforce(6), 336, "GeForce RTX 2060 specifications"),
    ("rtx2060-12gb", "sm75", "12 GB GDDR6", _geforce(12), 336, "GeForce RTX 2060 specifications"),
    ("rtx2070", "sm75", "8 GB GDDR6", _geforce(8), 448, "GeForce RTX 2070 specifications"),
    ("rtx2080", "sm75", "8 GB GDDR6", _geforce(8), 448, "GeForce RTX 2080 specifications"),
    ("rtx2080-super", "sm75", "8 GB GDDR6", _geforce(8), 496, "GeForce RTX 2080 SUPER specifications"),
    ("rtx2080ti", "sm75", "11 GB GDDR6", RTX_2080_TI, 616, "GeForce RTX 2080 Ti specifications"),
    ("titan-rtx", "sm75", "24 GB GDDR6", TURING.of(24 * GIB), 672, "TITAN RTX specifications"),
    ("rtx8000", "sm75", "48 GB GDDR6", TURING.of(48 * GIB), 672, "Quadro RTX 8000 data sheet"),
    ("rtx3050-8gb", "sm86", "8 GB GDDR6", _geforce(8), 224, "GeForce RTX 3050 specifications"),
    ("rtx3060-12gb", "sm86", "12 GB GDDR6", RTX_3060, 360, "GeForce RTX 3060 specifications"),
    ("rtx3060ti", "sm86", "8 GB GDDR6", _geforce(8), 448, "GeForce RTX 3060 Ti specifications"),
    ("rtx3070", "sm86", "8 GB GDDR6", _geforce(8), 448, "GeForce RTX 3070 specifications"),
    ("rtx3070ti", "sm86", "8 GB GDDR6X", _geforce(8), 608, "GeForce RTX 3070 Ti specifications"),
    ("rtx3080-10gb", "sm86", "10 GB GDDR6X", _geforce(10), 760, "GeForce RTX 3080 specifications"),
    ("rtx3080-12gb", "sm86", "12 GB GDDR6X", _geforce(12), 912, "GeForce RTX 3080 specifications"),
    ("rtx3080ti", "sm86", "12 GB GDDR6X", _geforce(12), 912, "GeForce RTX 3080 Ti specifications"),
    ("rtx3090", "sm86", "24 GB GDDR6X", RTX_3090, 936, "GeForce RTX 3090 specifications"),
    ("rtx3090ti", "sm86", "24 GB GDDR6X", _geforce(24), 1008, "GeForce RTX 3090 Ti specifications"),
    ("rtx4060", "sm89", "8 GB GDDR6", _geforce(8), 272, "GeForce RTX 4060 specifications"),
    ("rtx4060ti-8gb", "sm89", "8 GB GDDR6", _geforce(8), 288, "GeForce RTX 4060 Ti specifications"),
    ("rtx4060ti-16gb", "sm89", "16 GB GDDR6", _geforce(16), 288, "GeForce RTX 4060 Ti specifications"),
    ("rtx4070", "sm89", "12 GB GDDR6X", RTX_4070, 504, "GeForce RTX 4070 specifications"),
    ("rtx4070-super", "sm89", "12 GB GDDR6X", like(RTX_4070, "the RTX 4070's memory"), 504,
     "GeForce RTX 4070 SUPER specifications"),
    ("rtx4070ti", "sm89", "12 GB GDDR6X", like(RTX_4070, "the RTX 4070's memory"), 504,
     "GeForce RTX 4070 Ti specifications"),
    ("rtx4070ti-super", "sm89", "16 GB GDDR6X", RTX_4070_TI_SUPER, 672, "GeForce RTX 4070 Ti SUPER specifications"),
    ("rtx4080", "sm89", "16 GB GDDR6X", RTX_4080, 717, "GeForce RTX 4080 specifications"),
    ("rtx4080-super", "sm89", "16 GB GDDR6X", _geforce(16), 736, "GeForce RTX 4080 SUPER specifications"),
    ("rtx4090", "sm89", "24 GB GDDR6X", RTX_4090, 1008, "GeForce RTX 4090 specifications"),
    ("rtx4090d", "sm89", "24 GB GDDR6X", like(RTX_4090, "the RTX 4090's memory"), 1008,
     "GeForce RTX 4090 D specifications"),
    ("rtx5060", "sm120", "8 GB GDDR7", _geforce(8), 448, "GeForce RTX 5060 specifications"),
    ("rtx5060ti-8gb", "sm120", "8 GB GDDR7", _geforce(8), 448, "GeForce RTX 5060 Ti specifications"),
    ("rtx5060ti-16gb", "sm120", "16 GB GDDR7", RTX_5060_TI, 448, "GeForce RTX 5060 Ti specifications"),
    ("rtx5070", "sm120", "12 GB GDDR7", _geforce(12), 672, "GeForce RTX 5070 specifications"),
    ("rtx5070ti", "sm120", "16 GB GDDR7", _geforce(16), 896, "GeForce RTX 5070 Ti specifications"),
    ("rtx5080", "sm120", "16 GB GDDR7", _geforce(16), 960, "GeForce RTX 5080 specifications"),
    ("rtx5090", "sm120", "32 GB GDDR7", RTX_5090, 1792, "GeForce RTX 5090 specifications"),
    ("rtx-a2000-12gb", "sm86", "12 GB GDDR6", _workstation(12), 288, "RTX A2000 data sheet"),
    ("rtx-a4000", "sm86", "16 GB GDDR6", RTX_A4000, 448, "RTX A4000 data sheet"),
    ("rtx-a4500", "sm86", "20 GB GDDR6", _workstation(20), 640, "RTX A4500 data sheet"),
    ("rtx-a5000", "sm86", "24 GB GDDR6", RTX_A5000, 768, "RTX A5000 data sheet"),
    ("rtx-a5500", "sm86", "24 GB GDDR6", like(RTX_A5000, "the RTX A5000's memory"), 768, "RTX A5500 data sheet"),
    ("rtx-a6000", "sm86", "48 GB GDDR6", RTX_A6000, 768, "RTX A6000 data sheet"),
    ("rtx-4000-ada", "sm89", "20 GB GDDR6", _workstation(20), 360, "RTX 4000 Ada data sheet"),
    ("rtx-5000-ada", "sm89", "32 GB GDDR6", _workstation(32), 576, "RTX 5000 Ada data sheet"),
    ("rtx-6000-ada", "sm89", "48 GB GDDR6", RTX_6000_ADA, 960, "RTX 6000 Ada data sheet"),
    ("rtx-pro-4000", "sm120", "24 GB GDDR7", _geforce(24), 672, "RTX PRO 4000 Blackwell data sheet"),
    ("rtx-pro-4500", "sm120", "32 GB GDDR7", _geforce(32), 896, "RTX PRO 4500 Blackwell data sheet"),
    ("rtx-pro-5000", "sm120", "48 GB GDDR7", _geforce(48), 1344, "RTX PRO 5000 Blackwell data sheet"),
    ("rtx-pro-6000", "sm120", "96 GB GDDR7", RTX_PRO_6000, 1792, "RTX PRO 6000 Blackwell Workstation data sheet"),
    ("rtx-pro-6000-server", "sm120", "96 GB GDDR7", like(RTX_PRO_6000, "the workstation edition's memory"), 1597,
     "RTX PRO 6000 Blackwell Server data sheet"),
)  # fmt: skip

RTX_DEVICES: tuple[Device, ...] = build(VENDOR, TABLE)
