"""What a token takes in a rollout engine's cache: published and hand-derived values of twenty-five models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import plan_of
from trainledger.base.problems import InputError
from trainledger.facts.catalogue import find_model
from trainledger.facts.dtypes import BF16, FP8
from trainledger.model.build import build
from trainledger.model.kv import Cache, Cached, cached


def cache(name: str, **how: int) -> Cache:
    return Cache(cached(build(find_model(name).keys())), BF16, **how)


# layers x (keys + values) x key-value heads x head dim x 2 B; the marked ones are published
PER_TOKEN = {
    "llama-2-7b": 32 * 2 * 32 * 128 * 2,  # 0.5 MiB
    "llama-2-13b": 40 * 2 * 40 * 128 * 2,
    "llama-2-70b": 80 * 2 * 8 * 128 * 2,
    "llama-3-8b": 131_072,  # 128 KiB
    "llama-3-70b": 327_680,
    "llama-3.1-405b": 516_096,  # DeepSeek-V3 hardware report (arXiv:2505.09343), table 1: 516.096 KB
    "llama-3.2-1b": 16 * 2 * 8 * 64 * 2,
    "mistral-7b-v0.3": 131_072,
    "mixtral-8x7b": 131_072,
    "mixtral-8x22b": 56 * 2 * 8 * 128 * 2,
    "qwen2.5-0.5b": 24 * 2 * 2 * 64 * 2,
    "qwen2.5-7b": 28 * 2 * 4 * 128 * 2,
    "qwen2.5-72b": 327_680,  # the same table: 327.680 KB
    "qwen3-8b": 36 * 2 * 8 * 128 * 2,
    "qwen3-30b-a3b": 48 * 2 * 4 * 128 * 2,
    "gemma-2-9b": 42 * 2 * 8 * 256 * 2,
    "gemma-3-27b-text": 62 * 2 * 16 * 128 * 2,
    "gemma-4-31b-text": (50 * 16 * 256 + 10 * 4 * 512) * 2 * 2,  # sliding and full layers
    "gpt2": 12 * 2 * 12 * 64 * 2,
    "opt-13b": 819_200,  # PagedAttention (arXiv:2309.06180), section 3: 800 KB
    "gpt-oss-20b": 24 * 2 * 8 * 64 * 2,
    "starcoderbase": 40 * 2 * 1 * 128 * 2,  # one key-value head
    "phi-3-mini": 32 * 2 * 32 * 96 * 2,
    "deepseek-v2": 60 * (512 + 64) * 2,
    "deepseek-v3": 70_272,  # the same table: 70.272 KB
}


@pytest.mark.parametrize("name", PER_TOKEN)
def test_bytes_of_a_token(name: str) -> None:
    assert cache(name).per_token == PER_TOKEN[name]


def test_half_the_bits_are_half_the_bytes() -> None:
    layers = cached(build(find_model("llama-3-8b").keys()))
    assert Cache(layers, FP8).per_token * 2 == Cache(layers, BF16).per_token


def test_heads_are_shared_until_each_rank_has_one() -> None:
    assert cache("llama-3-8b", tp=8).per_token == 131_072 // 8
    assert cache("llama-3-8b", tp=16).per_token == 131_072 // 8  # a head lies on two ranks
    assert cache("deepseek-v3", tp=8).per_token == 70_272  # the latent lies on all


def test_a_window_keeps_its_last_tokens_and_one_page_more() -> None:
    found = Cached(layers=1, heads=1, width=1, window=1024)
    assert found.tokens(512, 16) == 512
    assert found.tokens(1024, 16) == 1024
    assert found.tokens(100_000, 16) == 1024 + 16
    short, long = (cache("gemma-3-27b-text").sequence(length) for length in (1024, 32_768))
    assert long < 32 * short / 5  # ten of sixty-two layers see all tokens


@given(length=st.integers(0, 10**6), page=st.integers(1, 512), window=st.integers(0, 10**5))
def test_pages_hold_what_is_kept_and_less_than_two_pages_more(length: int, page: int, window: int) -> None:
    kept = min(length, window) if window else length
    assert kept <= Cached(1, 1, 1, window).tokens(length, page) < kept + 2 * page


def test_linear_attention_caches_a_state_that_does_not_grow() -> None:
    """Qwen3-Next: 12 of 48 layers with 2 heads of 256; the others 3 past tokens of 8,192 channels, 32 matrices."""
    found = Cache(cached(build({"model_type": "qwen3_next"})), BF16)
    assert found.per_token == 12 * 2 * 2 * 256 * 2
    state = 36 * (3 * 8192 + 32 * 128 * 128) * 2
    assert found.sequence(0) == state
    assert found.sequence(4096) == 4096 * found.per_token + state
    half = Cache(cached(build({"model_type": "qwen3_next"})), BF16, tp=2)
    assert half.sequence(0) == state // 2


def test_a_model_without_a_cache_is_refused() -> None:
    with pytest.raises(InputError):
        cached(build(find_model("bert-base-uncased").keys()))


def test_falcon_caches_the_heads_that_it_repeats_once() -> None:
    for name, heads in (("falcon-7b", 1), ("falcon-40b", 8)):
        assert cached(build(find_model(name).keys()))[0].heads == heads


@pytest.mark.parametrize("name", ["llama-3-8b", "qwen2.5-7b", "deepseek-v3"])
def test_megatrons_own_model_caches_as_much(name: str) -> None:
    stack = {"framework": "megatron", "versions": {"torch": "2.13.0"}, "attention": "fused", "loss": "vocab-parallel"}
    plan = plan_of(
        name, stack={**stack, "recompute": "none"}, parallel={"strategy": "megatron-ddp"},
        precision={"gradients": "fp32", "master": "fp32"}, optimizer={"implementation": "apex-fused"},
    )  # fmt: skip
    assert plan.keys()["model_type"] == "megatron-gpt"
    assert Cache(cached(build(plan.keys())), BF16).per_token == PER_TOKEN[name]


def test_short_convolutions_cache_their_last_tokens() -> None:
    found = Cache(cached(build({"model_type": "lfm2", "full_attn_idxs": [2, 5]})), BF16)
    assert found.per_token == 2 * 2 * 8 * 80 * 2
    assert found.sequence(0) == 30 * 2 * 2560 * 2
