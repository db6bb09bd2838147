"""What Megatron-LM does where an argument is left out, by release; vocabularies of its tokenizers."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.deepspeed import Since
from trainledger.facts.import_rows import FilledRow

FILE = "megatron/training/arguments.py"
ARGUMENTS = Source("Megatron-LM arguments, their defaults", FILE, "core_v0.4.0 to 2026-08")
VALIDATED = Source("Megatron-LM arguments, what follows from others", f"{FILE}, validate_args", "v2.5 to 2026-08")
OPTIMIZER = Source(
    "Megatron-Core optimizer", "megatron/core/optimizer/__init__.py, FusedAdam", "core_v0.4.0 to 2026-08"
)
ENGINE = Source("Megatron-LM arguments, --transformer-impl", FILE, "core_v0.5.0 and core_v0.7.0")
SHARDING = Source(
    "Megatron-LM arguments, --data-parallel-sharding-strategy", FILE, "core_v0.14.0 to core_v0.17.0 and core_v0.18.0"
)
NEWEST = Source("Megatron-LM, the newest commit that was read", "github.com/NVIDIA/Megatron-LM, d98e8a64", "2026-08-22")
FSDP_OPTION = "parallel.options.data_parallel_sharding_strategy"


def _row(path: str, value: object, why: str, source: Source = ARGUMENTS) -> FilledRow:
    return FilledRow(path, value, why, source)


MODEL: tuple[FilledRow, ...] = (
    _row("model.position_embedding_type", "learned_absolute", "--position-embedding-type learned_absolute"),
    _row("model.normalization", "LayerNorm", "--normalization LayerNorm"),
    _row("model.hidden_act", "gelu", "GELU without --swiglu, --squared-relu, --quick-geglu"),
    _row("model.gated_linear_unit", False, "not gated without --swiglu"),
    _row("model.add_bias_linear", True, "biases without --disable-bias-linear"),
    _row("model.hidden_dropout", 0.1, "--hidden-dropout 0.1"),
    _row("model.attention_dropout", 0.1, "--attention-dropout 0.1"),
    _row("model.tie_word_embeddings", True, "tied without --untie-embeddings-and-output-weights"),
)
RUN: tuple[FilledRow, ...] = (
    _row("stack.versions.megatron", "main@2026-08-22", "the newest commit that was read", NEWEST),
    _row("precision.autocast", False, "weights are held in 16 bits; nothing is cast", VALIDATED),
    _row("optimizer.name", "adam", "--optimizer adam"),
    _row("optimizer.implementation", "apex-fused", "FusedAdam of Transformer Engine or Apex", OPTIMIZER),
    _row("optimizer.grad_clip", 1.0, "--clip-grad 1.0"),
    _row("parallel.strategy", "megatron-ddp", "without --use-distributed-optimizer"),
    _row("parallel.options.gradient_accumulation_fusion", True, "without --no-gradient-accumulation-fusion"),
    _row("batch.accumulation", 1, "global batch = micro-batch x data-parallel ranks", VALIDATED),
    _row("stack.attention", "fused", "--attention-backend auto: Transformer Engine chooses"),
    _row("stack.recompute", "none", "no --recompute-granularity"),
    _row("stack.loss", "vocab-parallel", "without --cross-entropy-loss-fusion"),
    FilledRow("stack.kernels", ["te"], "--transformer-impl transformer_engine", ENGINE, since="0.7"),
    FilledRow("stack.kernels", [], "--transformer-impl local", ENGINE, until="0.7"),
    FilledRow("stack.options.transformer_impl", "local", "--transformer-impl local", ENGINE, until="0.7"),
    _row("stack.compile", False, "no torch.compile of the model"),
)
SHARDED: tuple[FilledRow, ...] = (
    FilledRow(
        FSDP_OPTION,
        "optim_grads_params",
        "--data-parallel-sharding-strategy optim_grads_params",
        SHARDING,
        since="0.18",
    ),
    FilledRow(FSDP_OPTION, "no_shard", "--data-parallel-sharding-strategy no_shard", SHARDING, until="0.18"),
)
DETERMINISM = FilledRow(
    "stack.env.CUBLAS_WORKSPACE_CONFIG",
    ":4096:8",
    "--deterministic-mode sets it where nothing else did",
    Source("Megatron-LM determinism", "megatron/training/determinism.py", "core_v0.19.0"),
    since="0.19",
)


@dataclass(frozen=True, slots=True)
class Shapes:
    """What arguments of the model come to where they are left out: the feed-forward is `widening` times as wide as the
    hidden state; a gated one 2/3 of that (`gated` over `parts`), rounded down to a multiple of `multiple`; the
    vocabulary is padded to a multiple of `padding` x tp; latents' sizes; experts of each token."""

    widening: int
    gated: int
    parts: int
    multiple: int
    padding: int
    top_k: int
    kv_rank: int
    straight: int
    turned: int
    value: int
    source: Source


SHAPES = Shapes(4, 2, 3, 64, 128, 2, 32, 128, 64, 128, VALIDATED)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens of a tokenizer that needs no model's name to be known, by Megatron's word for it."""

    tokenizer: str
    size: int
    source: Source


DEFAULT_TOKENIZER = "GPT2BPETokenizer"
NULL_TOKENIZERS = ("NullTokenizer", "NullMultimodalTokenizer")
VOCABULARIES: dict[str, Vocabulary] = {
    row.tokenizer: row
    for row in (
        Vocabulary(
            DEFAULT_TOKENIZER, 50_257,
            Source(
                "GPT-2's byte-pair vocabulary, which pretrain_gpt.py takes by itself",
                "pretrain_gpt.py, args_defaults; gpt2-vocab.json", "2026-08",
            ),
        ),
        Vocabulary(
            "Llama2Tokenizer", 32_000,
            Source("Llama 2's SentencePiece model", "meta-llama/Llama-2-7b-hf, config.json", "2023-07"),
        ),
    )
}  # fmt: skip
NULL_IS_EXACT = Since(
    "0.18",
    "--vocab-size of a NullTokenizer counts its end-of-document token",
    Source(
        "Megatron-Core NullTokenizer, vocab_size",
        "megatron/core/tokenizers/text/libraries/null_tokenizer.py; before: _vocab_size_without_eod + 1",
        "core_v0.17.0 and core_v0.18.0",
    ),
)
