"""What Transformers, TRL and accelerate have where a key is left out, by release, and the words of their values."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.checkpoints import STATE_DICT_TYPE
from trainledger.facts.default_words import FROM_PRETRAINED
from trainledger.facts.import_rows import FilledRow
from trainledger.facts.versions import at_least

TRAINER = Source("Transformers TrainingArguments", "transformers/training_args.py", "4.39 to 5.24.0")
TRL_MODEL = Source("TRL ModelConfig", "trl/trainer/model_config.py", "0.9.6 to 1.16.0")
TRL_BASE = Source("TRL, shared configuration of its trainers", "trl/trainer/base_config.py, sft_config.py", "0.24.0")
TRL_SFT = Source("TRL SFTConfig", "trl/trainer/sft_config.py", "0.9.6 to 1.16.0")
TRL_LOSS = Source("TRL, loss in chunks by default", "huggingface/trl #5846", "1.7.0")
TRL_HEAD = Source(
    "TRL, fused head of preference trainers", "trl/trainer/{dpo,kto,grpo}_trainer.py, add_fused_lm_head", "1.16.0"
)
TRL_CHECKPOINT = Source("TRL, use_reentrant False", "trl/trainer/sft_trainer.py", "0.29.1")
FSDP2 = Source("Transformers, FSDP2 by default", "huggingface/transformers #45640", "2026-04")
UPCAST = Source("accelerate, FSDP keeps trained shards in float32", "huggingface/accelerate #2674", "0.30.1 to 1.15.0")
DDP = Source("Transformers Trainer, find_unused_parameters", "transformers/trainer.py, _wrap_model", "5.24.0")

TRAINER_FILLED = (
    FilledRow("batch.micro_batch", 8, "per_device_train_batch_size 8", TRAINER),
    FilledRow("batch.accumulation", 1, "gradient_accumulation_steps 1", TRAINER),
)
TRL_FILLED = (
    FilledRow("batch.sequence", 1024, "max_length 1024", TRL_SFT),
    FilledRow("stack.recompute.kind", "full", "gradient_checkpointing True", TRL_BASE, since="0.24"),
    FilledRow("stack.recompute.reentrant", False, "use_reentrant False", TRL_CHECKPOINT, since="0.29"),
    FilledRow("run.bf16", True, "bf16 True unless fp16", TRL_BASE, since="0.19"),
    FilledRow("run.dtype", "fp32", "dtype float32", TRL_MODEL, since="0.29"),
)
TRL_ADAPTER = (
    FilledRow("adapter.r", 16, "lora_r 16", TRL_MODEL),
    FilledRow("adapter.dropout", 0.05, "lora_dropout 0.05", TRL_MODEL),
)
_FUSED_HEAD = FilledRow("stack.loss", "fused-linear", "the head and the loss are fused", TRL_HEAD, since="1.15")
SFT = "sft"
TRL_HEAD_SINCE, TRL_CHUNKED_SINCE = _FUSED_HEAD.since, "1.4"  # releases: SFT's head is fused always, and by a name
TRL_CHUNKED = "chunked_nll"
TRL_LOSSES = {  # by task
    SFT: FilledRow("stack.loss", "fused-linear", "loss_type nll in chunks", TRL_LOSS, since="1.7"),
    "dpo": _FUSED_HEAD,
    "kto": _FUSED_HEAD,
    "grpo": _FUSED_HEAD,
}
TRL_REFERENCE = FilledRow(
    "stack.options.ref_model",
    "given",
    "the reference is a second model: no adapter is trained, and nothing is computed ahead",
    Source("TRL preference trainers", "trl/trainer/dpo_trainer.py, kto_trainer.py", "0.9.6 to 1.16.0"),
)
LIGER_LOSS = FilledRow(
    "stack.loss",
    "fused-linear",
    "use_liger_kernel fuses the head with TRL's own losses",
    Source("TRL preference trainers", "trl/trainer/{dpo,kto}_trainer.py, use_liger_kernel", "0.24.0, 0.25.0"),
    since="0.25",
)
TRL_ZERO3 = FilledRow(
    "stack.recompute.reentrant",
    True,
    "TRL recomputes with reentrance where an adapter is trained under ZeRO-3",
    Source("TRL SFTTrainer, PEFT with ZeRO-3", "trl/trainer/sft_trainer.py", "0.29.1 to 1.16.0"),
    since="0.29",
)
REFERENCED = ("dpo", "kto")
TRL_BETA = FilledRow(
    "roles.reference.placement",
    "colocated",
    "beta 0.04: the reference is a second model where no adapter is trained",
    Source("TRL GRPOConfig", "trl/trainer/grpo_config.py, beta (0.0 from 0.19 on)", "0.15.2 to 0.19.0"),
    until="0.19",
)
_SAMPLED = Source(
    "TRL GRPOConfig and RLOOConfig",
    "trl/trainer/{grpo,rloo}_config.py, max_prompt_length, max_completion_length, beta",
    "0.15.2 to 1.16.0",
)  # fmt: skip
RLOO_BETA = FilledRow(
    "roles.reference.placement", "colocated", "beta 0.05: the reference is a second model where no adapter is trained",
    _SAMPLED,
)  # fmt: skip
TRL_COMPLETION = (
    FilledRow("batch.loss_tokens", 512, "max_completion_length 512", _SAMPLED, since="1.10"),
    FilledRow("batch.loss_tokens", 256, "max_completion_length 256", _SAMPLED, until="1.10"),
)
TRL_UNCUT = "0.26"  # the release from which prompts are not cut unless a length is given, and later never
TRL_PROMPT = (
    FilledRow("batch.sequence", 512, "a completion after a prompt, taken to have 512 tokens", _SAMPLED, TRL_UNCUT),
    FilledRow("batch.sequence", 512, "a completion after max_prompt_length 512", _SAMPLED, until=TRL_UNCUT),
)
KBIT = FilledRow("precision.weights", "fp32", "prepare_model_for_kbit_training casts to float32", TRL_SFT, until="0.29")
BF16_ADAPTER = FilledRow("adapter.dtype", "bf16", "adapters of a quantised model are cast to bf16", TRL_SFT)
CHECKPOINT = FilledRow(
    "precision.weights",
    "bf16",
    "dtype auto: the checkpoint's, taken to be bf16 where that is not known",
    FROM_PRETRAINED,
)
SHARDS = FilledRow("precision.weights", "fp32", "trained shards are kept in float32", UPCAST, since="0.30")
FSDP_VERSION = (
    FilledRow("fsdp.version", 2, "fsdp_config version 2", FSDP2, since="5.10"),
    FilledRow("fsdp.version", 1, "fsdp_config version 1", FSDP2, until="5.10"),
)
FSDP_STATES = FilledRow(  # before, accelerate's own default: whole under FSDP1, by shards under FSDP2
    f"parallel.options.{STATE_DICT_TYPE}", "FULL_STATE_DICT", "fsdp_config state_dict_type FULL_STATE_DICT", FSDP2,
    since="5.10",
)  # fmt: skip
EVALUATION = FilledRow("evaluation.micro_batch", 8, "per_device_eval_batch_size 8", TRAINER)
UNUSED = FilledRow(
    "parallel.options.find_unused_parameters", True, "DDP looks for unused weights unless layers are recomputed", DDP
)
NO_WRAP = FilledRow("parallel.options.auto_wrap_policy", "NO_WRAP", "auto_wrap_policy NO_WRAP", UPCAST)

DTYPE_WORDS = {
    "float32": "fp32", "fp32": "fp32", "float": "fp32", "32": "fp32", "bfloat16": "bf16", "bf16": "bf16",
    "float16": "fp16", "fp16": "fp16", "half": "fp16", "16": "fp16",
}  # fmt: skip
ATTENTION_WORDS = {
    "eager": "eager", "sdpa": "sdpa", "flash_attention_2": "flash", "flash_attention_3": "flash",
    "flex_attention": "flex",
    "flash_attention_4": "flash", "kernels-community/flash-attn": "flash", "kernels-community/flash-attn2": "flash",
    "kernels-community/flash-attn3": "flash", "kernels-community/vllm-flash-attn3": "flash", "flash_attn": "flash",
    "fa2": "flash", "flex": "flex", "flash": "flash",
}  # fmt: skip
# Endings of a tuned model's name: its shape is that of the model whose name is left without one.
TUNED = (
    "-Instruct",
    "-instruct",
    "-it",
    "-pt",
    "-Chat",
    "-chat",
    "-Chat-hf",
    "-Base",
    "-base",
    "-Instruct-hf",
    "-chat-hf",
    "-Instruct-2507",
    "-Thinking-2507",
    "-deduped",
)
UNTUNED = "", "-base"  # and what may stand in its place
WITHIN = "-Instruct-v", "-v"  # Mistral's, with its release behind
# Owners who publish a model of another owner, or of their own, again: under its own name, and with a first word that
# names of today have lost.
COPIED = ("NousResearch", "unsloth", "meta-llama")
FORMER = "Meta-Llama", "Llama"
TUNED_SOURCE = Source("Hugging Face Hub, names of tuned models", "config.json of each pair", "2026-08")
ORDINALS = {2: "nd", 3: "rd"}  # of `every 2nd layer`
WORDS_SOURCE = Source("Transformers, attention implementations", "transformers/modeling_utils.py", "5.24.0")


def filled(rows: tuple[FilledRow, ...], version: str | None) -> tuple[FilledRow, ...]:
    """The rows that hold in a release; one that is not known counts as the newest."""
    return tuple(row for row in rows if holds(row, version))


def holds(row: FilledRow, version: str | None) -> bool:
    """Whether a release has this default."""
    if row.since and not at_least(version, row.since):
        return False
    return not (row.until and at_least(version, row.until))


def trl_loss(task: str, release: str | None, named: object) -> tuple[FilledRow, ...]:
    """The fused head of a task's trainer, where this release has it: SFT's is told by the `named` loss, before that of
    all trainers was fused."""
    row = TRL_LOSSES.get(task)
    fused = row is not None and holds(row, release)
    if task == SFT and named and not at_least(release, TRL_HEAD_SINCE):
        fused = named == TRL_CHUNKED and at_least(release, TRL_CHUNKED_SINCE)
    return (row,) if row is not None and fused else ()
