"""The witness against a run that no dispatch mode watches, and against numbers known from the operations themselves."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.witness.cuda_like import like_cuda  # noqa: E402
from tests.witness.tracer import Options, Trace, _Script, rounded, trace  # noqa: E402

PLAIN = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 256,
}
GROUPED = {**PLAIN, "num_key_value_heads": 2}
LLAMA = {**GROUPED, "model_type": "llama"}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256, "n_positions": 64}
BERT = {**PLAIN, "model_type": "bert", "max_position_embeddings": 64}
OPT = {
    "model_type": "opt", "hidden_size": 64, "ffn_dim": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 256, "max_position_embeddings": 64, "word_embed_proj_dim": 64,
}  # fmt: skip
HEADED = {**GROUPED, "head_dim": 16}
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": (LLAMA, {}),
    "gpt2": (GPT2, {}),
    "bert": (BERT, {"head": "MaskedLM"}),
    "classifier": (BERT, {"head": "SequenceClassification"}),
    "opt": (OPT, {}),
    "gpt_neox": ({**PLAIN, "model_type": "gpt_neox", "max_position_embeddings": 64}, {}),
    "gemma": ({**HEADED, "model_type": "gemma"}, {}),
    "gemma2": ({**HEADED, "model_type": "gemma2"}, {"attention": "eager"}),
    "gemma3_text": ({**HEADED, "model_type": "gemma3_text"}, {}),
    "phi3": ({**GROUPED, "model_type": "phi3", "pad_token_id": 0}, {}),
    "qwen3": ({**HEADED, "model_type": "qwen3"}, {}),
    "olmo2": ({**GROUPED, "model_type": "olmo2"}, {}),
    "mistral": ({**GROUPED, "model_type": "mistral"}, {}),
    "mixtral": ({**GROUPED, "model_type": "mixtral", "num_local_experts": 4}, {}),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "recompute": {"recompute": "full"},
    "re-entrant": {"recompute": "full-reentrant"},
    "autocast": {"weights": "fp32", "autocast": "bf16"},
    "autocast-recompute": {"weights": "fp32", "autocast": "bf16", "recompute": "full"},
    "half": {"weights": "fp16", "attention": "eager"},
    "micro-batches": {"accumulation": 2, "clip": 1.0},
    "loop": {"optimizer": "adamw-loop"},
    "fused": {"optimizer": "adamw-fused"},
    "cudnn": {"kernel": "cudnn"},
    "efficient": {"kernel": "efficient"},
    "math": {"kernel": "math"},
}
RNG_STATE = 5056
NOISE = 16


def run(config: dict[str, Any], **more: Any) -> Trace:
    return trace(config, **{"batch": 2, "sequence": 32, "steps": 3, **more})


def sizes(found: Trace, name: str, step: int) -> list[int]:
    return [e.size for e in found.phase(name, step).events]


def unwatched(config: dict[str, Any], **options: Any) -> list[int]:
    """Sizes of the CPU allocator's own events of the same script, no mode active."""
    script = _Script(config, Options(**options))
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        stack.enter_context(like_cuda("math"))
        profile = stack.enter_context(torch.profiler.profile(profile_memory=True))
        script.loop()
    events = profile.profiler.kineto_results.events()
    memory = [(e.start_ns(), place, e.nbytes()) for place, e in enumerate(events) if e.name() == "[memory]"]
    return [size for *_, size in sorted(memory) if NOISE < abs(size) != RNG_STATE]


@pytest.mark.parametrize(
    "more", [{}, {"recompute": "full"}, {"recompute": "full-reentrant"}, {"accumulation": 2}], ids=str
)
@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_events_are_those_of_the_allocator(config: dict[str, Any], more: dict[str, Any]) -> None:
    """Every event, in order; a kernel's own temporaries come and go between two of them."""
    options = {"batch": 1, "sequence": 32, "weights": "fp32", "attention": "eager", "optimizer": "adamw-fused", **more}
    real = unwatched(config, **options)
    place = 0
    for event in trace(config, **options).events:
        if event.phase == "build" or abs(event.size) <= NOISE:
            continue
        skipped = 0
        while place < len(real) and (real[place] != event.size or skipped):
            skipped += real[place]
            place += 1
        assert place < len(real), event
        place += 1


@pytest.mark.parametrize("name", MODELS)
def test_models_repeat_their_step(name: str) -> None:
    config, more = MODELS[name]
    found = run(config, **more)
    for phase in ("forward", "backward", "optimizer"):
        assert sizes(found, phase, 1) == sizes(found, phase, 2)
    assert found.phase("forward", 1).start == found.phase("forward", 2).start


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_repeat_their_step(name: str) -> None:
    found = run(LLAMA, **VARIANTS[name])
    assert sizes(found, "backward", 1) == sizes(found, "backward", 2)


def per_layer(config: dict[str, Any], key: str, **more: Any) -> int:
    two, three = (
        trace({**config, key: layers}, batch=1, sequence=64, steps=1, optimizer=None, **more).saved_bytes()
        for layers in (2, 3)
    )
    return three - two


WIDE = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1792, "num_attention_heads": 4,
        "num_key_value_heads": 1, "vocab_size": 64}  # fmt: skip
RNG = 24


def test_llama_saves_what_its_operations_save() -> None:
    s, h, f, a, k = 64, 512, 1792, 4, 1
    norms, qkv, out, logsumexp = 16 * s * h + 8 * s, 2 * s * h + 4 * s * h * k // a, 2 * s * h, 4 * a * s
    assert per_layer(WIDE, "num_hidden_layers") == norms + qkv + out + logsumexp + 8 * s * f + RNG


def test_autocast_keeps_casts_of_weights() -> None:
    s, h, f, a, k = 64, 512, 1792, 4, 1
    weights = 2 * (2 * h * h + 2 * h * h * k // a + 3 * h * f)
    saved = per_layer(WIDE, "num_hidden_layers", weights="fp32", autocast="bf16")
    assert saved == 59 * s * h + 4 * a * s + 8 * s + RNG + weights


@pytest.mark.parametrize(("dropout", "a_unit"), [(0.0, 56), (0.1, 58)])
def test_gpt2_saves_bool_masks(dropout: float, a_unit: int) -> None:
    s, h, a = 64, 512, 8
    config = {**GPT2, "n_embd": h, "n_head": a, "resid_pdrop": dropout, "attn_pdrop": dropout, "embd_pdrop": dropout}
    assert per_layer(config, "n_layer") == a_unit * s * h + 4 * a * s + 16 * s + RNG


def test_optimizer_transients() -> None:
    """foreach one copy of the parameters; the loop two of one and the last one's denominator; fused none."""
    rise = {}
    for kind in ("foreach", "loop", "fused"):
        found = run(LLAMA, optimizer="adamw-" + kind)
        phase = found.phase("optimizer", 2)
        rise[kind] = phase.peak - phase.start
        assert found.phase("forward", 1).start - found.phase("forward", 0).start >= 2 * found.built - RNG_STATE
    params = [e.size for e in found.events if e.phase == "build"][:-1]
    largest = max(2 * size + before for before, size in zip([0, *params], params, strict=False))
    assert rise == {"foreach": found.built - 64, "loop": largest, "fused": 0}


def test_logits_reach_the_peak_three_times() -> None:
    config = {**LLAMA, "vocab_size": 8192}
    peak = run(config, steps=1, optimizer=None).phase("forward").peak_live
    logits = sorted(e.size // (2 * 32 * 8192) for e in peak if e.phase == "forward" and e.size >= 2 * 2 * 32 * 8192)
    assert logits == [2, 4, 4]


def test_rounded() -> None:
    assert [rounded(n) for n in (1, 512, 513, -1)] == [512, 512, 1024, -512]
