"""Advice for what does not fit beside the devices: the host's memory of a node, NVMe, the disk. A new one is a row."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.allocator_settings import CONFIG
from trainledger.facts.checkpoints import EXPORT, STATE_DICT_TYPE
from trainledger.facts.host_memory import EFFICIENT, SECOND, WORKERS, ZERO_INIT
from trainledger.facts.move_row import OUT, AtLeast, Move, Price, Set, Times
from trainledger.facts.moves import INFINITY, OFFLOAD, TUNE, ZERO_JSON
from trainledger.facts.moves_memory import QLORA

STRATEGY, FRAMEWORK = "parallel.strategy", "stack.framework"
TRAINER = ("transformers", "deepspeed")
FSDP = ("fsdp1", "fsdp2", "hsdp")
PINS = "parallel.options.offload_optimizer.pin_memory", "parallel.options.offload_param.pin_memory"
DRIVES = "NVMe drives in every node, and DeepSpeed's asynchronous I/O (libaio)"
SLOW_COPIES = "copies over the host's link that are not page-locked are slower"
ROOM = "room on the device"
WORKER_KEY, AHEAD_KEY = "stack.options.dataloader_num_workers", "stack.options.dataloader_prefetch_factor"
SAVING = Source("Transformers TrainingArguments", "src/transformers/training_args.py, save_*", "5.24.0")
SHARDED = Source("PyTorch FSDP state dicts", "docs: torch.distributed.fsdp, StateDictType", "2.13")
STAGED = Source(
    "PyTorch distributed checkpoints, async_save", "torch/distributed/checkpoint/state_dict_saver.py", "2.13"
)

OFFLOADED = (
    Move(
        "optimizer on NVMe", "offload", (("offload.optimizer", "nvme"),), Price.NVME, INFINITY,
        (("offload.optimizer", ("cpu",)), (STRATEGY, ("zero3",))), needs=DRIVES,
    ),
    Move(
        "optimizer and weights on NVMe", "offload", (("offload.optimizer", "nvme"), ("offload.params", "nvme")),
        Price.NVME, INFINITY,
        (("offload.params", ("cpu",)), ("offload.optimizer", ("cpu", "nvme")), (STRATEGY, ("zero3",))), needs=DRIVES,
    ),
    Move(
        "weights on the device", "offload", (("offload.params", None),), Price.FREE, INFINITY,
        (("offload.params", Set()), ("offload.optimizer", Set()), (STRATEGY, ("zero3",))), needs=ROOM,
    ),
    Move(
        "optimizer on the device", "offload",
        (("offload.optimizer", None), ("optimizer.implementation", OUT)), Price.FREE, OFFLOAD,
        (("offload.optimizer", Set()), ("offload.params", Set(False))), needs=ROOM,
    ),
    Move(
        "weights and optimizer on the device", "offload",
        (("offload.params", None), ("offload.optimizer", None), ("optimizer.implementation", OUT)), Price.FREE, OFFLOAD,
        (("offload.params", Set()),), needs=ROOM,
    ),
    Move(
        "saved activations on the device", "activations", (("offload.activations", None),), Price.FREE, TUNE,
        (("offload.activations", Set()),), needs=ROOM,
    ),
    Move(
        "what is offloaded not page-locked", "pinned", tuple((path, False) for path in PINS), Price.HOST, ZERO_JSON,
        (("offload.optimizer", ("cpu",)), (STRATEGY, ("zero1", "zero2", "zero3"))), needs=SLOW_COPIES,
    ),
    Move(
        "page-locked memory not rounded up to powers of two", "pinned",
        (("stack.allocator.pinned_max_round_threshold_mb", 1),), Price.FREE, CONFIG,
        (("stack.allocator.pinned_max_round_threshold_mb", (None,)), ("offload.optimizer", Set())),
        needs="a release of PyTorch that has the setting",
    ),
    Move(
        "page-locked memory not rounded up to powers of two", "pinned",
        (("stack.allocator.pinned_max_round_threshold_mb", 1),), Price.FREE, CONFIG,
        (("stack.allocator.pinned_max_round_threshold_mb", (None,)), ("offload.params", Set()),
         ("offload.optimizer", Set(False))),
        needs="a release of PyTorch that has the setting",
    ),
)  # fmt: skip

LOADED = (
    Move(
        "one rank of a node reads the model, the others wait for it", "loading",
        (("parallel.options.cpu_ram_efficient_loading", True),), Price.FREE, EFFICIENT.source,
        ((STRATEGY, FSDP), (FRAMEWORK, TRAINER), ("parallel.options.cpu_ram_efficient_loading", (None, False))),
    ),
    Move(
        "the model made in parts (zero.Init)", "loading", (("parallel.options.zero_init", OUT),), Price.FREE,
        ZERO_INIT.source, ((STRATEGY, ("zero3",)), ("parallel.options.zero_init", (False,))),
        needs="the model made after the Trainer's arguments, so that DeepSpeed's settings are known",
    ),
    Move(
        "the model read straight to its device", "loading", (("stack.options.device_map", "cuda:0"),), Price.FREE,
        EFFICIENT.source,
        ((STRATEGY, ("none", "ddp")), (FRAMEWORK, ("transformers",)), ("stack.options.device_map", (None, False))),
        needs="every process's own device as the map: cuda:LOCAL_RANK",
    ),
    Move(
        "no copy of the file beside the model", "loading", (("stack.options.low_cpu_mem_usage", True),), Price.FREE,
        SECOND.source,
        ((FRAMEWORK, TRAINER), ("stack.options.low_cpu_mem_usage", (None, False)),
         ("stack.versions.transformers", Set())),
    ),
    Move(
        "frozen weights in NF4", "base", (("quantization", {"kind": "nf4", "double": True}),), Price.NUMERICS, QLORA,
        (("adapter", Set()), ("quantization", Set(False)), (FRAMEWORK, ("transformers",))), needs="bitsandbytes",
        numerics="frozen weights are rounded to 4 bits",
    ),
    Move(
        "half the ranks of each node", "node", (("node.ranks", Times(1, 2)),), Price.DEVICES, WORKERS.source,
        (("node.ranks", AtLeast(2)),), needs="twice the nodes, for as many devices",
    ),
    Move(
        "half the data loader's workers", "workers", ((WORKER_KEY, Times(1, 2)),), Price.LOADING, WORKERS.source,
        ((WORKER_KEY, AtLeast(2)),),
    ),
    Move(
        "no worker of the data loader", "workers", ((WORKER_KEY, 0),), Price.LOADING, WORKERS.source,
        ((WORKER_KEY, AtLeast(1)),),
    ),
    Move(
        "one batch ahead of each worker", "ahead", ((AHEAD_KEY, 1),), Price.LOADING, WORKERS.source,
        ((WORKER_KEY, AtLeast(1)), (AHEAD_KEY, AtLeast(2, or_none=True))),
    ),
)  # fmt: skip

SAVED = (
    Move(
        "saved by shards, not gathered", "gathering",
        ((f"parallel.options.{STATE_DICT_TYPE}", "SHARDED_STATE_DICT"),), Price.FREE, SHARDED,
        ((STRATEGY, FSDP), (f"parallel.options.{STATE_DICT_TYPE}", (None, "FULL_STATE_DICT"))),
        needs="a conversion before other programs read the weights",
    ),
    Move(
        "no whole 16-bit weights gathered at a save", "gathering", ((f"parallel.options.{EXPORT}", False),), Price.FREE,
        ZERO_JSON, ((STRATEGY, ("zero3",)), (f"parallel.options.{EXPORT}", (True,))),
        needs="zero_to_fp32.py before other programs read the weights",
    ),
    Move(
        "no export beside each checkpoint", "gathering", (("save.export", False),), Price.FREE, SAVING,
        (("save.export", (True,)),), needs="a conversion before other programs read the weights",
    ),
    Move(
        "training waits while a checkpoint is written", "staging", (("save.asynchronous", False),), Price.WAITING,
        STAGED, (("save.asynchronous", (True,)),),
    ),
    Move(
        "one checkpoint kept", "kept", (("save.limit", 1),), Price.RESUMING, SAVING,
        (("save", Set()), ("save.limit", AtLeast(2, or_none=True))),
    ),
    Move(
        "half the checkpoints kept", "kept", (("save.limit", Times(1, 2)),), Price.RESUMING, SAVING,
        (("save.limit", AtLeast(4)),),
    ),
    Move(
        "weights saved without the optimizer", "whole", (("save.optimizer", False),), Price.RESUMING, SAVING,
        (("save.optimizer", (True,)),), needs="no resume: a stopped run begins anew from the weights",
    ),
    Move(
        "weights saved in bf16", "saved dtype", (("save.dtype", "bf16"),), Price.NUMERICS, SAVING,
        (("save", Set()), ("save.dtype", (None, "fp32")), ("precision.weights", ("fp32",))),
        numerics="saved weights are rounded to bf16",
    ),
)  # fmt: skip

PLACE_MOVES: tuple[Move, ...] = (*OFFLOADED, *LOADED, *SAVED)
