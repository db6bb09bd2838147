"""DeepSpeed and FSDP settings that front ends carry with them, by the name under which their files are named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Bundled:
    """One file of settings: `names` it goes by (no folder, no ending), `data`: what in it moves memory."""

    names: tuple[str, ...]
    data: Mapping[str, Any]
    source: Source


AUTOS = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
AUTO = "auto"
BILLION, HALF_BILLION, FIFTH_BILLION = 10**9, 5 * 10**8, 2 * 10**8


def _settings(zero: dict[str, Any], bf16: object = AUTO, **more: Any) -> dict[str, Any]:
    """DeepSpeed's settings as the Trainer fills them in, with these of ZeRO."""
    half = {"bf16": {"enabled": bf16}, **({"fp16": {"enabled": AUTO}} if bf16 == AUTO else {})}
    return {"zero_optimization": zero, **half, **dict.fromkeys(AUTOS, AUTO), **more}


def _host(**more: Any) -> dict[str, Any]:
    return {"device": "cpu", **more}


# Axolotl -----------------------------------------------------------------------------------------------------------


def _axolotl(name: str) -> Source:
    return Source("Axolotl, settings it carries", f"deepspeed_configs/{name}.json", "0.9.2 to 0.18.0")


_AX_TWO = {"stage": 2, "offload_optimizer": _host(), "contiguous_gradients": True, "overlap_comm": True}
_AX_THREE = {
    "stage": 3,
    "overlap_comm": True,
    "contiguous_gradients": True,
    "sub_group_size": 0,
    "reduce_bucket_size": AUTO,
    "stage3_prefetch_bucket_size": AUTO,
    "stage3_param_persistence_threshold": AUTO,
    "stage3_max_live_parameters": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_gather_16bit_weights_on_model_save": True,
}
_PINNED = _host(pin_memory=True)
_AX_PARAMS = {**_AX_THREE, "offload_param": _PINNED}
AXOLOTL_BUNDLED: tuple[Bundled, ...] = (
    Bundled(
        ("zero1", "zero1_torch_compile"), _settings({"stage": 1, "overlap_comm": True}), _axolotl("zero1")
    ),
    Bundled(("zero2", "zero2_torch_compile"), _settings(_AX_TWO), _axolotl("zero2")),
    Bundled(("zero3",), _settings(_AX_THREE), _axolotl("zero3")),
    Bundled(("zero3_bf16",), _settings(_AX_THREE, True), _axolotl("zero3_bf16")),
    Bundled(("zero3_bf16_cpuoffload_params",), _settings(_AX_PARAMS, True), _axolotl("zero3_bf16_cpuoffload_params")),
    Bundled(
        ("zero3_bf16_cpuoffload_all",),
        _settings({**_AX_PARAMS, "offload_optimizer": _PINNED}, True),
        _axolotl("zero3_bf16_cpuoffload_all"),
    ),
)  # fmt: skip

# LLaMA-Factory -----------------------------------------------------------------------------------------------------


def _factory(name: str) -> Source:
    return Source("LLaMA-Factory, its examples", f"examples/deepspeed/{name}.json", "0.9.6")


def _flat(stage: int, bucket: int, **more: Any) -> dict[str, Any]:
    return {
        "stage": stage,
        "allgather_partitions": True,
        "allgather_bucket_size": bucket,
        "overlap_comm": False,
        "reduce_scatter": True,
        "reduce_bucket_size": bucket,
        "contiguous_gradients": True,
        **more,
    }


_THREE = {
    "stage": 3,
    "overlap_comm": False,
    "contiguous_gradients": True,
    "sub_group_size": BILLION,
    "reduce_bucket_size": AUTO,
    "stage3_prefetch_bucket_size": AUTO,
    "stage3_param_persistence_threshold": AUTO,
    "stage3_max_live_parameters": BILLION,
    "stage3_max_reuse_distance": BILLION,
    "stage3_gather_16bit_weights_on_model_save": True,
}
_ROBIN = {"round_robin_gradients": True}
_BOTH = {"offload_optimizer": _PINNED, "offload_param": _PINNED}
LLAMAFACTORY_BUNDLED: tuple[Bundled, ...] = (
    Bundled(("ds_z0_config",), _settings(_flat(0, HALF_BILLION, **_ROBIN)), _factory("ds_z0_config")),
    Bundled(("ds_z2_config",), _settings(_flat(2, HALF_BILLION, **_ROBIN)), _factory("ds_z2_config")),
    Bundled(
        ("ds_z2_offload_config",),
        _settings(_flat(2, HALF_BILLION, offload_optimizer=_PINNED, **_ROBIN)),
        _factory("ds_z2_offload_config"),
    ),
    Bundled(("ds_z3_config",), _settings(_THREE), _factory("ds_z3_config")),
    Bundled(("ds_z3_offload_config",), _settings({**_THREE, **_BOTH}), _factory("ds_z3_offload_config")),
)

# ms-swift ----------------------------------------------------------------------------------------------------------


def _swift(name: str) -> Source:
    return Source("ms-swift, settings it carries", f"swift/config/{name}.json", "4.6")


SWIFT_BUNDLED: tuple[Bundled, ...] = (
    Bundled(("zero0",), _settings(_flat(0, FIFTH_BILLION)), _swift("zero0")),
    Bundled(("zero1",), _settings(_flat(1, FIFTH_BILLION)), _swift("zero1")),
    Bundled(("zero2",), _settings(_flat(2, FIFTH_BILLION)), _swift("zero2")),
    Bundled(("zero2_offload",), _settings(_flat(2, FIFTH_BILLION, offload_optimizer=_PINNED)), _swift("zero2_offload")),
    Bundled(("zero3",), _settings(_THREE), _swift("zero3")),
    Bundled(("zero3_offload",), _settings({**_THREE, **_BOTH}), _swift("zero3_offload")),
)
SWIFT_FSDP2 = Bundled(
    ("fsdp2",),
    {
        "fsdp": "full_shard auto_wrap",
        "fsdp_config": {
            "fsdp_version": 2,
            "reshard_after_forward": True,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_ram_efficient_loading": True,
            "state_dict_type": "SHARDED_STATE_DICT",
            "activation_checkpointing": True,
        },
    },
    _swift("fsdp2"),
)
