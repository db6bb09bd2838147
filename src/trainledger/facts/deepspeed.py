"""DeepSpeed: constants of its optimizers, its defaults, and releases from which it acts otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class Since:
    """Something that DeepSpeed does from this release on."""

    release: str
    what: str
    source: Source

    def holds(self, version: str) -> bool:
        """Whether it does in this release; an unknown one counts as newest."""
        return at_least(version or None, self.release)


def _since(release: str, what: str, path: str, change: str = "") -> Since:
    return Since(release, what, Source(f"DeepSpeed, {what}", f"deepspeed/runtime/{path}", change or f"v{release}"))


COPIED_SWAP = _since("0.13.0", "the optimizer's files on NVMe are copied into a checkpoint", "engine.py")
LAZY_STATES = _since("0.13.2", "no step of the optimizer when it is built", "zero/stage_1_and_2.py", "#5104")
BUCKETS_AT_HOOK = _since("0.18.3", "reduce buckets made at the first gradient", "zero/stage_1_and_2.py", "#7665")
DEVICE_FLATTEN = _since("0.18.7", "weights flattened on the device", "zero/stage_1_and_2.py", "#7828")
FP32_PART = _since("0.19.8", "fp32 gradients kept as this rank's part only", "zero/stage_1_and_2.py")
REPLICATED_BF16 = _since("0.17.6", "stage 0 in bf16 as in fp16, replicated", "engine.py", "#7515")
SCALAR_OVERFLOW = _since("0.19.6", "overflow found by largest and smallest", "zero/stage_1_and_2.py")
DEVICE_OVERFLOW = _since("0.13.3", "overflow looked for on the device", "zero/stage_1_and_2.py")
CHECKS_BF16 = _since("0.19.6", "bf16 gradients checked for overflow", "precision_config.py")
BORN_FP32 = _since("0.18.3", "master weights cast, then copied", "zero/stage3.py")
FREED_EMBEDDING = _since("0.19.3", "weights without a backward of their own freed after backward", "zero/stage3.py")
ANY_LINEAR = _since(
    "0.19.4", "products that save no gathered weight, for models built whole", "zero/stage3.py", "#8189"
)
PINS = _since("0.19.5", "offloaded tensors page-locked unless told otherwise", "zero/offload_config.py", "#8207")
PINS_AS_TOLD = _since(
    "0.18.3", "offloaded master weights of stages 1 and 2 page-locked only where told", "zero/stage_1_and_2.py", "#7689"
)
PARTITION = "zero/partition_parameters.py"
SPLIT = _since("0.12.3", "part of an offloaded optimizer kept on the device", "zero/stage3.py")
SPLIT_TORCH = _since("0.13.3", "torch's AdamW for the part kept on the device", "zero/stage3.py")
SPLIT_FIRST = _since("0.18.0", "the first sub-groups kept on the device, not the last", "zero/stage3.py")
SPLIT_OPTIMIZERS = ("adam", "adamw")  # whose updates are divided: DeepSpeed's CPU Adam; by their names in a plan
SPLIT_CHECKED = _since("0.15.1", "a divided optimizer refused but in stage 3", "zero/config.py, offload_ratio_check")
HOST_OPTIMIZERS = ("adam", "adamw", "lion", "adagrad")  # of which it has kernels for the host; by their names in a plan
HOSTED = Source(
    "DeepSpeed, an offloaded optimizer has to be one of its own for the host",
    "deepspeed/runtime/engine.py, _configure_optimizer (zero_force_ds_cpu_optimizer), _configure_basic_optimizer",
    "0.9.5 to 0.19.8",
)
FP8_KEPT = _since("0.19.3", "8-bit floating-point parameters left as they are", "engine.py, CASTABLE_DTYPES")
NO_MICS = _since("0.19.7", "no MiCS", "config.py, _REMOVED_ZERO_CONFIG_KEYS")
LOCKED = _since("0.19.4", "swap buffers locked in place, not rounded up", "swap_tensor/utils.py")
QUANTIZED = _since("0.10.0", "weights gathered in 8 bits", PARTITION)
CODED_COPIES = _since("0.17.2", "values of 8-bit codes cast to the weights' dtype as copied", PARTITION)
CODED_PARTS = _since("0.19.6", "weights cast to fp16 for the 8-bit kernels and back", PARTITION)
GRADIENT_DTYPE = _since("0.10.1", "gradient partitions in grad_accum_dtype", "zero/stage3.py")
IMMEDIATE = (
    _since("0.16.0", "BF16_Optimizer adds gradients as they come", "bf16_optimizer.py"),
    _since("0.17.1", "BF16_Optimizer adds gradients after backward", "precision_config.py"),
)
FREED_AT_ONCE = _since("0.19.8", "bf16 gradients freed as they are added", "bf16_optimizer.py")


@dataclass(frozen=True, slots=True)
class Constants:
    """What DeepSpeed's optimizers do everywhere. `alignment`: a flat group of weights is a multiple of so many elements
    a rank; `fallback`: elements of one reduction of stage 0; `norm_chunk`: elements whose norm is taken at once where
    the optimizer is offloaded; `early_overflow`, `device_overflow`: bytes an element that a look for overflow makes."""

    alignment: int
    fallback: int
    norm_chunk: int
    early_overflow: int
    device_overflow: int
    source: Source


DEEPSPEED = Constants(
    2,
    500_000_000,
    250_000_000,
    4,
    11,
    Source(
        "DeepSpeed ZeRO",
        "deepspeed/runtime/zero/stage_1_and_2.py, stage3.py, runtime/engine.py, runtime/utils.py",
        "0.9.5 to 0.19.8",
    ),
)


@dataclass(frozen=True, slots=True)
class Quantizer:
    """How ZeRO++ codes weights in 8 bits: elements that a group of one scale may have, and of which its count is a
    multiple."""

    target: int
    unit: int
    source: Source

    def groups(self, size: int) -> int:
        """Groups of a tensor of `size` elements: as few as have no more than `target` each and divide into whole
        units. Raises ValueError where `size` is no multiple of the unit: the kernel refuses such a tensor."""
        units, rest = divmod(size, self.unit)
        if rest or not units:
            raise ValueError(f"{size} elements are no multiple of {self.unit}")
        least = -(-size // self.target)
        small = [one for one in range(1, isqrt(units) + 1) if not units % one]
        return min(one for pair in small for one in (pair, units // pair) if one >= least)


QUANTIZER = Quantizer(
    8000, 8, Source("DeepSpeed CUDAQuantizer", "deepspeed/runtime/zero/partition_parameters.py", "0.10.0 to 0.19.8")
)


@dataclass(frozen=True, slots=True)
class Pinned:
    """Page-locked host memory: PyTorch's allocator of it rounds each tensor up to a power of two."""

    source: Source


PINNED = Pinned(Source("PyTorch CachingHostAllocator", "aten/src/ATen/core/CachingHostAllocator.h", "v2.4 to v2.13"))


@dataclass(frozen=True, slots=True)
class Swap:
    """ZeRO-Infinity's defaults: buffers for the optimizer, each as large as a sub-group; buffers for weights and their
    elements; elements of weights that stay in the host's memory; bytes from which on a part goes to NVMe."""

    optimizer_buffers: int
    weight_buffers: int
    weight_elements: int
    weights_kept: int
    smallest: int
    source: Source


SWAP = Swap(
    4,
    5,
    100_000_000,
    1_000_000_000,
    1_048_576,
    Source(
        "DeepSpeed ZeRO-Infinity",
        "deepspeed/runtime/zero/offload_config.py, swap_tensor/partitioned_param_swapper.py",
        "0.9.5 to 0.19.8",
    ),
)

ZERO3 = "zero3"
STAGES = {"zero1": 1, "zero2": 2, ZERO3: 3}  # by the strategy's name in a plan


@dataclass(frozen=True, slots=True)
class Auto:
    """What the Trainer puts for `auto`: `tenths` tenths of the hidden size to this power, whole elements."""

    tenths: int
    power: int
    source: Source

    def elements(self, hidden: int) -> int:
        """Elements for a model of this hidden size."""
        return int(self.tenths * hidden**self.power) // TENTHS


TENTHS = 10
TRAINER_CONFIG = Source(
    "Transformers and accelerate, a DeepSpeed configuration's auto values",
    "transformers/integrations/deepspeed.py, trainer_config_finalize; accelerate/accelerator.py, _prepare_deepspeed",
    "transformers 4.34 to 5.24, accelerate 0.24 to 1.15",
)


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting of `zero_optimization` in elements, with its default in every release from 0.9.5 to 0.19.8, and what
    `auto` means (None: it has no such value)."""

    name: str
    default: int
    source: Source
    auto: Auto | None = None


def _knob(name: str, default: int, auto: Auto | None = None) -> Knob:
    where = Source(f"DeepSpeed, {name}", "deepspeed/runtime/zero/config.py", "0.9.5 to 0.19.8")
    return Knob(name, default, where, auto)


REDUCE_BUCKET = _knob("reduce_bucket_size", 500_000_000, Auto(10, 2, TRAINER_CONFIG))
PREFETCH = _knob("stage3_prefetch_bucket_size", 50_000_000, Auto(9, 2, TRAINER_CONFIG))
PERSISTENCE = _knob("stage3_param_persistence_threshold", 100_000, Auto(100, 1, TRAINER_CONFIG))
MAX_LIVE = _knob("stage3_max_live_parameters", 1_000_000_000)
MAX_REUSE = _knob("stage3_max_reuse_distance", 1_000_000_000)
SUB_GROUP = _knob("sub_group_size", 1_000_000_000)
