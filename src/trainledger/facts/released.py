"""Layers whose code changed between releases of Transformers: from which one on they run as the ledger has them."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class ReleasedLayers:
    """The model types; the release since which their layers run as the ledger has them; that since which a router's
    weight stays fp32 whatever the model's dtype (before, it has that; empty: it always has); and those from which on,
    and before which again, rotary tables of fp32 are cast to the model's dtype (empty: never). `routed`: the release
    since which models with experts do (empty: as others)."""

    families: tuple[str, ...]
    since: str
    high_router: str
    source: Source
    low_tables: tuple[str, str] = ("", "")
    routed: str = ""


_ROWS = (
    ReleasedLayers(
        ("deepseek_v2", "deepseek_v3", "glm4_moe_lite"), "5.18", "5.24",
        Source(
            "Transformers DeepSeek V2 and V3",
            "transformers/models/{deepseek_v2,deepseek_v3,glm4_moe_lite}/modeling_*.py: expand_kv, router (5.0.0, "
            "5.12.0, 5.18.0 to 5.24.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("glm4_moe", "dots1", "solar_open"), "5.18", "5.24",
        Source(
            "Transformers GLM-4.5 and its kin",
            "transformers/models/{glm4_moe,dots1,solar_open}/modeling_*.py, *TopkRouter (5.12.0, 5.18.0 to 5.24.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("granitemoe", "granitemoeshared"), "5.18", "",
        Source(
            "Transformers Granite with experts",
            "transformers/models/{granitemoe,granitemoeshared}/modeling_*.py: experts as grouped products (5.18.0 to "
            "5.24.0; ParallelExperts up to 5.12.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("lfm2", "lfm2_moe"), "5.18", "",
        Source(
            "Transformers LFM2",
            "transformers/models/{lfm2,lfm2_moe}/modeling_*.py: one convolution for all kernels (5.18.0 to 5.24.0, not "
            "5.12.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("apertus",), "5.0", "",
        Source(
            "Transformers Apertus",
            "transformers/models/apertus/modeling_apertus.py, transformers/activations.py (5.0.0 to 5.24.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("electra",), "5.0", "",
        Source("Transformers ELECTRA", "transformers/models/electra/modeling_electra.py (5.0.0 to 5.24.0)", "5.24.0"),
    ),
    ReleasedLayers(
        ("exaone",), "5.24", "",
        Source(
            "Transformers EXAONE",
            "transformers/models/auto/modeling_auto.py: EXAONE runs as LlamaForCausalLM (5.24.0; not there in 5.22.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("llama4_text",), "4.56", "",
        Source("Transformers Llama 4", "transformers/models/llama4/modeling_llama4.py (4.51.3 to 5.24.0)", "5.24.0"),
    ),
    ReleasedLayers(
        ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), "5.17", "",
        Source(
            "Transformers Qwen 2 VL and 2.5 VL",
            "transformers/models/{qwen2_vl,qwen2_5_vl}/modeling_*.py: rotary tables joined in each layer up to 5.16.0",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("olmo3",), "4.57", "",
        Source(
            "Transformers OLMo 3",
            "transformers/models/olmo3/modeling_olmo3.py, Olmo3RotaryEmbedding (4.57.1, 5.0.0 to 5.13.0, 5.24.0)",
            "5.24.0",
        ),
        ("5.0", "5.13"),
    ),
    ReleasedLayers(
        ("gemma4_text",), "5.6", "",
        Source(
            "Transformers Gemma 4",
            "transformers/models/gemma4/modeling_gemma4.py: Gemma4TextAttention (5.5.0 to 5.24.0), Gemma4TextRouter "
            "(5.12.0, 5.13.0)",
            "5.24.0",
        ),
        routed="5.13",
    ),
    ReleasedLayers(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), "5.18", "",
        Source(
            "Transformers Qwen3-Next and Qwen3.5",
            "transformers/models/{qwen3_next,qwen3_5,qwen3_5_moe}/modeling_*.py: a triangular solve in place of a "
            "loop, kernels by package (5.4.0, 5.12.0, 5.16.0, 5.18.0 to 5.24.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("falcon", "bloom", "mpt"), "4.54", "",
        Source(
            "Transformers Falcon, BLOOM and MPT",
            "transformers/models/{falcon,bloom,mpt}/modeling_*.py: a layer returns its weights (4.54.1 to 5.24.0, not "
            "4.53.3)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("gptj", "codegen"), "5.24", "",
        Source(
            "Transformers GPT-J and CodeGen",
            "transformers/models/{gptj,codegen}/modeling_*.py: one table for all layers (5.24.0, not 5.20.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("stablelm", "persimmon", "nemotron", "olmo"), "5.4", "",
        Source(
            "Transformers StableLM, Persimmon, Nemotron and OLMo",
            "transformers/models/{stablelm,persimmon,nemotron,olmo}/modeling_*.py (5.24.0; other code before 5.4)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("modernbert",), "5.4", "",
        Source(
            "Transformers ModernBERT",
            "transformers/models/modernbert/modeling_modernbert.py (5.4.0 to 5.24.0; written otherwise in 5.0.0)",
            "5.24.0",
        ),
    ),
    ReleasedLayers(
        ("gpt_oss",), "5.0", "",
        Source("Transformers gpt-oss", "transformers/models/gpt_oss/modeling_gpt_oss.py (5.0.0 to 5.24.0)", "5.24.0"),
    ),
)  # fmt: skip
RELEASED = {family: row for row in _ROWS for family in row.families}
