"""Checkpoints: what each format writes, who writes it, and what resuming elsewhere needs."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import GB, GIB


@dataclass(frozen=True, slots=True)
class Format:
    """A way of writing checkpoints. `same`: what resumes it as it is; `other`: what another number of ranks, or another
    framework, needs. `together`: where ranks have shards, rank 0 gathers weights and states at once. `serialised`: a
    file is made in memory before it is written."""

    name: str
    same: str
    other: str
    source: Source
    together: bool = False
    serialised: bool = False


_HUB = Source("Transformers save_pretrained", "transformers/modeling_utils.py, save_pretrained", "4.40.2, 5.24.0")
_TRAINER = Source(
    "Transformers Trainer, _save_checkpoint", "transformers/trainer.py; trainer_optimizer.py", "4.40.2, 5.24.0"
)
_PEFT = Source("PEFT save_pretrained", "peft/peft_model.py, save_pretrained", "0.21.2")
_TORCH = Source("PyTorch torch.save", "torch/serialization.py", "2.13")
_DEEPSPEED = Source(
    "DeepSpeed save_checkpoint", "deepspeed/runtime/engine.py; zero/stage_1_and_2.py, stage3.py", "0.19.8"
)
_FSDP = Source("accelerate save_fsdp_model, save_fsdp_optimizer", "accelerate/utils/fsdp_utils.py", "1.15.0")
_DCP = Source("PyTorch distributed checkpoint", "torch/distributed/checkpoint", "2.13")
_MEGATRON = Source(
    "Megatron-LM checkpointing", "megatron/training/checkpointing.py; megatron/core/dist_checkpointing", "0.14.0"
)
_VERL = Source("verl, save_checkpoint under FSDP", "verl/utils/checkpoint/fsdp_checkpoint_manager.py", "2026-01")
_COLOSSAL = Source(
    "ColossalAI, save_model and save_optimizer by shards",
    "colossalai/booster/plugin/low_level_zero_plugin.py; checkpoint_io/utils.py, StateDictSharder",
    "2026-04",
)

_TUNE = Source(
    "torchtune, save_checkpoint of its recipes", "torchtune/training/checkpointing/_checkpointer.py; recipes", "0.6.1"
)
_LITGPT = Source(
    "LitGPT, fit and main; Lightning Fabric's save",
    "litgpt/finetune/{full,lora}.py; pretrain.py; scripts/merge_lora.py; lightning/fabric/utilities/cloud_io.py",
    "0.5.13; 2.6.6",
)

FORMATS: dict[str, Format] = {
    row.name: row
    for row in (
        Format(
            "safetensors",
            "holds weights alone: training starts anew from them, without the optimizer's states",
            "any number of ranks reads it, and so do other frameworks that know the names",
            _HUB,
        ),
        Format(
            "trainer",
            "the same strategy; each rank reads its own random state",
            "plain data parallelism: any number of ranks; under DeepSpeed and FSDP as their own formats say",
            _TRAINER,
        ),
        Format("adapter", "needs the base model beside it", "any number of ranks", _PEFT),
        Format(
            "torch-sharded",
            "the same number of ranks, sharded alike: each reads the files that it wrote",
            "merge the shards first (verl's model_merger), which takes the weights alone",
            _VERL,
        ),
        Format(
            "colossalai",
            "every rank reads all of it and keeps its part; master weights are made anew from the weights",
            "the weights alone, under the model's own names",
            _COLOSSAL,
        ),
        Format("torch", "one file holds everything", "any number of ranks; rank 0 reads it all", _TORCH),
        Format(
            "deepspeed",
            "the same number of data-parallel ranks and the same stage",
            "convert it to a universal checkpoint first (ds_to_universal.py), or take the weights alone "
            "(zero_to_fp32.py, which holds them in fp32 in the host's memory)",
            _DEEPSPEED,
        ),
        Format(
            "fsdp-full",
            "any number of ranks: rank 0 reads it whole into the host's memory and scatters it",
            "any framework that knows the names; rank 0 needs room for it",
            _FSDP,
        ),
        Format(
            "fsdp-sharded",
            "any number of ranks: shards are cut anew as they are read",
            "merge it into one file for anything else (accelerate merge-weights, or dcp_to_torch_save)",
            _DCP,
        ),
        Format(
            "megatron-torch",
            "the same tensor- and pipeline-parallel degrees, and the same layout of the distributed optimizer",
            "convert it (tools/checkpoint/convert.py); optimizer states are lost on the way",
            _MEGATRON,
        ),
        Format(
            "megatron-dist",
            "any tensor-, pipeline- and data-parallel degrees that the model allows",
            "optimizer states move to other degrees only where they were written fully reshardable",
            _MEGATRON,
        ),
        Format(
            "torchtune",
            "an epoch's weights and recipe_state.pt, which each epoch but the last writes over",
            "any number of ranks: each reads all of it and keeps its part",
            _TUNE,
            together=True,
        ),
        Format(
            "litgpt",
            "one file holds everything; of LoRA it holds the factors alone, and nothing resumes the optimizer",
            "any number of ranks; litgpt convert_from_litgpt gives the weights the names that others know",
            _LITGPT,
            together=True,
            serialised=True,
        ),
    )
}

# By framework: how it writes unless told otherwise. What is not here writes one file with torch.save.
DEFAULTS: dict[str, str] = {
    **dict.fromkeys(
        ("transformers", "trl", "peft", "axolotl", "llama-factory", "unsloth", "ms-swift", "fsdp_qlora"), "trainer"
    ),
    **dict.fromkeys(("deepspeed", "megatron-deepspeed", "openrlhf"), "deepspeed"),
    "colossalai": "colossalai",
    "torchtune": "torchtune",
    "litgpt": "litgpt",
    **dict.fromkeys(("torchtitan", "pithtrain"), "fsdp-sharded"),
    **dict.fromkeys(("megatron", "megatron-bridge", "nemo"), "megatron-dist"),
}
OWN_SHARDS = ("verl",)  # frameworks that write what each rank of FSDP holds to files of its own
PEFT_EXCLUDES = tuple(name for name, form in DEFAULTS.items() if form == "trainer")  # exclude_frozen_parameters of PEFT
STAGED = ("torchtune",)  # frameworks that write shards of FSDP where training goes on meanwhile
MERGED = ("torchtune", "litgpt")  # frameworks that write an adapter's weights merged into those of the base
TWO_FOLDERS = PEFT_EXCLUDES  # accelerate's: weights and optimizer are checkpoints of their own


@dataclass(frozen=True, slots=True)
class FileSize:
    """The largest file of weights, from a release of Transformers on."""

    since: str
    bytes: int
    source: Source


@dataclass(frozen=True, slots=True)
class Embeddings:
    """Modules by whose names PEFT knows embeddings: where an adapter targets one, its own weights are saved too."""

    modules: tuple[str, ...]
    since: str
    source: Source


EMBEDDINGS = Embeddings(
    ("embed_tokens", "lm_head"),
    "0.8",
    Source("PEFT, save_embedding_layers='auto'", "peft/utils/save_and_load.py", "0.6.2 to 0.21.2"),
)
COLOSSAL_FILE = FileSize("", GIB, _COLOSSAL)
BASE_FILES = FileSize("", 5 * GB, _TUNE)  # torchtune cuts weights as the base model's files are: most have up to 5 GB
FILE_SIZES = (FileSize("5.0", 50 * GB, _HUB), FileSize("4.34", 5 * GB, _HUB), FileSize("", 10 * GB, _HUB))


@dataclass(frozen=True, slots=True)
class DistFiles:
    """Files that a rank writes at once under Megatron's torch_dist format."""

    threads: int
    source: Source


DIST_FILES = DistFiles(
    2, Source("Megatron-Core, thread_count", "megatron/core/dist_checkpointing/strategies/torch.py", "0.14.0")
)


EXPORT = "stage3_gather_16bit_weights_on_model_save"  # DeepSpeed's setting of an export of whole 16-bit weights
STATE_DICT_TYPE = "state_dict_type"  # FSDP's setting: whole, or by shards


@dataclass(frozen=True, slots=True)
class Universal:
    """DeepSpeed's conversion: processes that read parts of the optimizer's states at once, and those that join them;
    copies of the states on disk while it runs (each parameter's parts, and what they are joined to)."""

    extract: int
    merge: int
    copies: int
    source: Source


UNIVERSAL = Universal(
    4, 2, 2,
    Source(
        "DeepSpeed universal checkpoints",
        "deepspeed/checkpoint/{ds_to_universal,universal_checkpoint}.py; runtime/zero/stage3.py",
        "0.19",
    ),
)  # fmt: skip
SLICED = Source(
    "PyTorch distributed checkpoint: every rank reads each stored tensor that overlaps its own, whole",
    "torch/distributed/checkpoint/filesystem.py, read_data; planner_helpers.py",
    "2.13",
)
SCATTERED = Source(
    "Megatron-Core distributed checkpoints: which ranks read what, by the optimizer's sharding type",
    "megatron/core/optimizer/distrib_optimizer.py, sharded_state_dict; dist_checkpointing/strategies/torch.py",
    "0.14.0",
)
PARTED = Source(
    "DeepSpeed load_checkpoint: a rank reads its own part, of as many data-parallel ranks as wrote it",
    "deepspeed/runtime/engine.py, _load_zero_checkpoint, _get_all_zero_checkpoint_state_dicts",
    "0.19.8",
)
