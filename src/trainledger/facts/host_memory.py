"""What a run holds in its host's memory beside offloaded tensors: models while they load, processes, data workers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Basis, Source
from trainledger.base.units import GB, KIB, MB
from trainledger.facts.overheads import Interval


class Load(StrEnum):
    """Who holds the whole model in the host's memory while it loads."""

    ALL = "every rank holds a whole copy until it is on its device"
    FIRST = "one rank of a node holds a whole copy, the others wait for its broadcast"
    ZERO = "rank 0 of all holds the whole state dict, the others its keys"
    MESH = "rank 0 of those that shard holds a whole copy, the others wait for it"
    MAPPED = "files are mapped and read tensor by tensor: their pages are shared, and given back when memory is short"
    NOBODY = "made on the device, or without storage: nothing passes through the host whole"


@dataclass(frozen=True, slots=True)
class Way:
    """How models are loaded: in which way, by what."""

    load: Load
    source: Source


_HF = "transformers/modeling_utils.py, from_pretrained, load_state_dict, _load_pretrained_model"
WHOLE = Way(Load.ALL, Source("Transformers from_pretrained without a device map", _HF, "4.40.2, 5.24.0"))
DIRECT = Way(Load.MAPPED, Source("Transformers from_pretrained with a device map", _HF, "4.40.2, 5.24.0"))
EFFICIENT = Way(
    Load.FIRST,
    Source(
        "accelerate, cpu_ram_efficient_loading: ranks but a node's first load no values",
        f"{_HF}; accelerate/utils/fsdp_utils.py",
        "4.40.2, 5.24.0; 1.15.0",
    ),
)
ZERO_INIT = Way(Load.ZERO, Source("Transformers under zero.Init, _load_state_dict_into_zero3_model", _HF, "5.24.0"))
ZERO_EARLIER = Way(
    Load.MAPPED, Source("Transformers under zero.Init: every rank maps each file in turn", _HF, "4.40.2")
)
VERL = Way(
    Load.MESH,
    Source("verl: ranks but the mesh's first build the model without storage", "verl/utils/fsdp_utils.py", "2026-01"),
)
BITSANDBYTES = Way(Load.MAPPED, Source("Transformers sets a device map of its own for quantised models", _HF, "4.40.2"))
AUTO_SINCE = "5.0"  # Transformers' release from which the checkpoint's own dtype is taken unless another is asked for
ZERO_SINCE = "5.0"  # Transformers' release from which rank 0 alone reads values under zero.Init


@dataclass(frozen=True, slots=True)
class Second:
    """Before `until`, from_pretrained without low_cpu_mem_usage makes the model first and holds a file of its weights
    beside it: mapped where it is in safetensors, else a copy of at most `file_bytes`."""

    until: str
    file_bytes: int
    source: Source


SECOND = Second(
    "4.51", 5 * GB, Source("Transformers from_pretrained, low_cpu_mem_usage=False", _HF, "4.40.2; gone in 4.51")
)


@dataclass(frozen=True, slots=True)
class Stays:
    """What keeps a whole copy from being one: from `since` on, or with low_cpu_mem_usage, and always under FSDP's
    efficient loading and zero.Init, parameters are views of the mapped file where their dtype is the file's. From
    `stacks_since` on experts are stacked as they are read, which takes memory of its own. `always`: frameworks that
    cast nothing on the host."""

    since: str
    stacks_since: str
    always: tuple[str, ...]
    source: Source


STAYS = Stays(
    "4.51",
    "5.0",
    ("torchtune",),
    Source(
        "parameters that stay in the mapped file: a bf16 Llama of 400 MB takes 2 MB of its own as bf16, 782 MB as fp32",
        f"{_HF}; torchtune/training/checkpointing/_utils.py; run on a CPU",
        "4.40.2, 4.51.3, 4.57.1, 5.24.0; 0.6.1",
    ),
)
FRAMEWORKS: dict[str, Way] = {
    "torchtitan": Way(
        Load.NOBODY, Source("torchtitan: meta device, then DCP into shards", "torchtitan/train.py", "2026-08")
    ),
    "pithtrain": Way(Load.NOBODY, Source("PithTrain: meta device, then shards", "pithtrain/train.py", "2026")),
    "litgpt": Way(
        Load.MAPPED, Source("LitGPT: init_module, then a mapped file", "litgpt/utils.py, load_checkpoint", "2026-06")
    ),
    "torchtune": Way(
        Load.ALL,
        Source("torchtune: every rank reads the whole state dict", "torchtune/training/checkpointing", "0.6.1"),
    ),
    "fsdp_qlora": Way(Load.FIRST, Source("fsdp_qlora, --low_memory: rank 0 holds the weights", "train.py", "2024-06")),
    **dict.fromkeys(
        ("megatron", "megatron-bridge", "nemo", "megatron-deepspeed"),
        Way(
            Load.NOBODY,
            Source(
                "Megatron-Core: built on the device unless use_cpu_initialization",
                "megatron/training/training.py",
                "2026-08",
            ),
        ),
    ),
}

PROCESS = Interval(
    322_040 * KIB,
    2_056_600 * KIB,
    4 * GB,
    "B",
    Source(
        "a process with torch imported: 322,040 kB; with a CUDA context 2,056,600 kB (RTX 3090); about 4 GB elsewhere",
        "github.com/pytorch/pytorch/issues/113326, github.com/open-mmlab/mmdetection/issues/9052",
        "2022, 2023",
    ),
    Basis.MEASURED,
)


@dataclass(frozen=True, slots=True)
class Workers:
    """A data loader's workers: batches that each has ready, and what a forked process has of its own (bytes): nothing
    at least, at most what an interpreter with torch holds."""

    prefetch: int
    own: Interval
    source: Source


_TOUCHED = Source("pages that reference counts touch after a fork", "github.com/pytorch/pytorch/issues/13246", "2018")
WORKERS = Workers(
    2,
    Interval(0, 100 * MB, 322_040 * KIB, "B", _TOUCHED),
    Source("PyTorch DataLoader, prefetch_factor", "torch/utils/data/dataloader.py", "2.13"),
)
