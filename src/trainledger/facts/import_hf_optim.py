"""The Trainer's names of optimizers (`optim`), and the plan's keys that each stands for."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow

TRAINER = Source("Transformers, Trainer's optimizers", "transformers/trainer_optimizer.py", "5.24.0")
DEEPSPEED = Source("DeepSpeed, optimizer section", "deepspeed/runtime/engine.py, _configure_basic_optimizer", "0.19.8")


@dataclass(frozen=True, slots=True)
class OptimRow:
    """One name: the plan's optimizer, how its step runs (empty: it has one way, or PyTorch's default), whether it runs
    in backward, and options that the Trainer itself sets."""

    name: str
    optimizer: str
    source: Source
    implementation: str = ""
    in_backward: bool = False
    options: tuple[tuple[str, object], ...] = ()


ADAFACTOR = (("scale_parameter", False), ("relative_step", False))
FOREACH, FUSED = "foreach", "fused"
OPTIMS: dict[str, OptimRow] = {
    row.name: row
    for row in (
        OptimRow("adamw_torch", "adamw", TRAINER, FOREACH),
        OptimRow("adamw_torch_fused", "adamw", TRAINER, FUSED),
        OptimRow("adamw_hf", "adamw", TRAINER, "loop"),
        OptimRow("adamw_apex_fused", "adamw", TRAINER, "apex-fused"),
        OptimRow("adafactor", "adafactor", TRAINER, options=ADAFACTOR),
        OptimRow("adamw_torch_4bit", "adamw-4bit", TRAINER),
        OptimRow("adamw_torch_8bit", "adamw-torchao-8bit", TRAINER),
        OptimRow("adamw_torch_fp8", "adamw-fp8", TRAINER),
        OptimRow("ademamix", "ademamix", TRAINER),
        OptimRow("sgd", "sgd", TRAINER, FOREACH),
        OptimRow("adagrad", "adagrad", TRAINER, FOREACH),
        OptimRow("rmsprop", "rmsprop", TRAINER, FOREACH),
        OptimRow("adamw_bnb_8bit", "adamw-8bit", TRAINER),
        OptimRow("adamw_8bit", "adamw-8bit", TRAINER),
        OptimRow("ademamix_8bit", "ademamix-8bit", TRAINER),
        OptimRow("lion_8bit", "lion-8bit", TRAINER),
        OptimRow("lion_32bit", "lion", TRAINER),
        OptimRow("paged_adamw_32bit", "paged-adamw-32bit", TRAINER),
        OptimRow("paged_adamw_8bit", "paged-adamw-8bit", TRAINER),
        OptimRow("paged_ademamix_32bit", "paged-ademamix-32bit", TRAINER),
        OptimRow("paged_ademamix_8bit", "paged-ademamix-8bit", TRAINER),
        OptimRow("paged_lion_32bit", "paged-lion-32bit", TRAINER),
        OptimRow("paged_lion_8bit", "paged-lion-8bit", TRAINER),
        OptimRow("rmsprop_bnb_8bit", "rmsprop-8bit", TRAINER),
        OptimRow("galore_adamw", "galore-adamw", TRAINER),
        OptimRow("galore_adamw_8bit", "galore-adamw-8bit", TRAINER),
        OptimRow("galore_adafactor", "galore-adafactor", TRAINER, options=ADAFACTOR),
        OptimRow("galore_adamw_layerwise", "galore-adamw", TRAINER, in_backward=True),
        OptimRow("galore_adamw_8bit_layerwise", "galore-adamw-8bit", TRAINER, in_backward=True),
        OptimRow("galore_adafactor_layerwise", "galore-adafactor", TRAINER, in_backward=True),
        OptimRow("apollo_adamw", "apollo-adamw", TRAINER),
        OptimRow("apollo_adamw_layerwise", "apollo-adamw", TRAINER, in_backward=True),
        OptimRow("lomo", "lomo", TRAINER, in_backward=True),
        OptimRow("adalomo", "adalomo", TRAINER, in_backward=True),
        OptimRow("grokadamw", "grokadamw", TRAINER),
        OptimRow("schedule_free_radam", "schedule-free-radam", TRAINER),
        OptimRow("schedule_free_adamw", "schedule-free-adamw", TRAINER),
        OptimRow("schedule_free_sgd", "schedule-free-sgd", TRAINER),
        OptimRow("stable_adamw", "stable-adamw", TRAINER),
    )
}
# DeepSpeed's `optimizer.type`, in lower case; torch_adam in its params asks for PyTorch's own.
DEEPSPEED_OPTIMS: dict[str, OptimRow] = {
    row.name: row
    for row in (
        OptimRow("adam", "adamw", DEEPSPEED, "apex-fused"),  # adam_w_mode is true unless it is turned off
        OptimRow("adamw", "adamw", DEEPSPEED, "apex-fused"),
        OptimRow("cpuadam", "adamw", DEEPSPEED, "cpu"),
        OptimRow("lion", "lion", DEEPSPEED),
        OptimRow("adagrad", "adagrad", DEEPSPEED),
        OptimRow("sgd", "sgd", DEEPSPEED, FOREACH),
        OptimRow("lamb", "lamb", DEEPSPEED),
        OptimRow("muon", "muon", DEEPSPEED),
    )
}
LOW_RANK = FilledRow("optimizer.options.rank", 128, "rank of GaLore and APOLLO", TRAINER)
