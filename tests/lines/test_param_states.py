"""What Megatron-Core's optimizers hold, and when; runs of it on PyTorch's allocator hold as much."""

from __future__ import annotations

import pytest

from trainledger.facts.dtypes import BF16, FP8, FP16, FP32
from trainledger.lines.param_buffers import Buffer, Parameter, Wrap, buffers
from trainledger.lines.param_states import Held, Kind, Since, Stepped, raised, states

KIB = 1024
BLOCK = 512  # bytes to which the allocator rounds
# allocated_init of megatron-core 0.19.2 on PyTorch's allocator, and after the last step (emulated-megatron:
# emu-mg_tinyllama_dp8_do_s2048, its _bf16grads, emu-mg_r07, emu-mg_r18): Llama-like models by layers, width, heads'
# query and key rows, feed-forward width, vocabulary
TINY = (22, 2048, 2048, 256, 5632, 32000)
WIDE = (8, 4096, 4096, 1024, 14336, 128256)
FP32_RUN = (TINY, Wrap(8, 8), 7_150_315_520)
BF16_RUN = (TINY, Wrap(8, 8, gradients=None), 4_950_218_752)
RUNS = (
    FP32_RUN,
    BF16_RUN,
    (WIDE, Wrap(4, 4, gradients=None), 13_977_867_264),
    (WIDE, Wrap(4, 4, distributed=False, gradients=None), 22_364_587_008),
)
STEADY = {FP32_RUN: 8_319_008_768, BF16_RUN: 6_668_936_192}


def llama(shape: tuple[int, ...]) -> list[Parameter]:
    """A Llama-like model's parameters as Megatron-Core names and orders them."""
    layers, hidden, rows, key_rows, feed, vocab = shape
    sizes = [("embedding.word_embeddings.weight", vocab * hidden)]
    for at in range(layers):
        inner = {
            "input_layernorm.weight": hidden,
            "self_attention.linear_proj.weight": rows * hidden,
            "self_attention.linear_qkv.weight": (rows + 2 * key_rows) * hidden,
            "pre_mlp_layernorm.weight": hidden,
            "mlp.linear_fc1.weight": 2 * feed * hidden,
            "mlp.linear_fc2.weight": feed * hidden,
        }
        sizes += [(f"decoder.layers.{at}.{name}", size) for name, size in inner.items()]
    sizes += [("decoder.final_layernorm.weight", hidden), ("output_layer.weight", vocab * hidden)]
    return [Parameter(name, size, BF16) for name, size in sizes]


def blocks(sizes: list[int]) -> int:
    """Bytes of tensors in the allocator's blocks."""
    return sum(-(-size // BLOCK) * BLOCK for size in sizes)


def resident(shape: tuple[int, ...], wrap: Wrap, since: tuple[Since, ...]) -> int:
    """Bytes of buffers, weights and states on rank 0."""
    parameters = llama(shape)
    found = buffers(parameters, wrap)
    sizes = [size for one in found for size in (one.weight_bytes, one.gradient_bytes)]
    sizes += [] if wrap.distributed else [one.bytes for one in parameters]
    sizes += [
        held.dtype.bytes_of(size) for held in states(found, 0, Stepped()) if held.since in since for size in held.sizes
    ]
    return blocks(sizes)


@pytest.mark.parametrize(("shape", "wrap", "measured"), RUNS)
def test_what_is_there_before_the_first_step_is_what_was_measured(
    shape: tuple[int, ...], wrap: Wrap, measured: int
) -> None:
    rest = measured - resident(shape, wrap, (Since.BUILT,))  # the gradients' scale, the state of random numbers
    assert 0 <= rest <= 4 * KIB


def test_gradients_in_16_bits_are_copied_to_fp32_for_the_step() -> None:
    """All that two runs differ in after a step, to the byte."""
    found = [resident(shape, wrap, tuple(Since)) for shape, wrap, _ in (FP32_RUN, BF16_RUN)]
    assert found[1] - found[0] == STEADY[BF16_RUN] - STEADY[FP32_RUN]


def model(dtype: str = "bf16") -> list[Parameter]:
    return [
        Parameter("embedding.word_embeddings.weight", 4096, BF16),
        Parameter("decoder.layers.0.mlp.router.weight", 128, FP32),
        Parameter("decoder.layers.0.mlp.linear_fc1.weight", 2048, BF16),
    ]


def by_kind(held: tuple[Held, ...]) -> dict[tuple[str, str, str], int]:
    found: dict[tuple[str, str, str], int] = {}
    for one in held:
        key = (one.kind.value, one.dtype.name, one.since.value)
        found[key] = found.get(key, 0) + one.bytes
    return found


def laid(distributed: bool = True, gradients: str = "fp32", ranks: int = 1) -> tuple[Buffer, ...]:
    return buffers(model(), Wrap(ranks, ranks, distributed, gradients=FP32 if gradients == "fp32" else None))


def test_a_whole_copy_of_the_states_without_the_distributed_optimizer() -> None:
    assert by_kind(states(laid(distributed=False), 0, Stepped())) == {
        ("master weights", "fp32", "build"): 4 * 6144,  # not of the router: it is in fp32
        ("first moment", "fp32", "step 1"): 4 * 6272,
        ("second moment", "fp32", "step 1"): 4 * 6272,
    }


def test_a_rank_holds_its_pieces_and_all_ranks_together_everything() -> None:
    whole = by_kind(states(laid(distributed=False), 0, Stepped()))
    parts = [by_kind(states(laid(ranks=4), rank, Stepped())) for rank in range(4)]
    assert {key: sum(part.get(key, 0) for part in parts) for key in whole} == whole


def test_an_experts_rank_is_another() -> None:
    expert = [Parameter("a", 1024, BF16, expert=True)]
    found = buffers(expert, Wrap(8, 2))
    assert [one.sizes for one in states(found, 5, Stepped())] == [(512,)] * 3
    assert states(found, 5, Stepped(), expert_rank=1) == states(found, 5, Stepped())


def test_the_copy_of_the_gradients_goes_with_the_next_step() -> None:
    key = ("gradients in fp32", "fp32", "every step")
    assert by_kind(states(laid(gradients="own"), 0, Stepped()))[key] == 4 * 6144
    assert by_kind(states(laid(distributed=False, gradients="own"), 0, Stepped()))[key] == 4 * 6144
    assert key not in by_kind(states(laid(), 0, Stepped()))


def test_precision_aware_adam_keeps_16_bits_of_the_master_weights() -> None:
    assert by_kind(states(laid(gradients="own"), 0, Stepped((BF16, BF16), aware=True))) == {
        ("master weights", "int16", "step 1"): 2 * 6144,
        ("master weights", "fp32", "step 1"): 4 * 128,  # of the router too: FusedAdam keeps one of every parameter
        ("first moment", "bf16", "step 1"): 2 * 6272,
        ("second moment", "bf16", "step 1"): 2 * 6272,
        ("scales of states", "fp32", "step 1"): 4 * 2 * 3,
    }


@pytest.mark.parametrize(
    ("optimizer", "master"),
    [
        (Stepped(aware=True, engine="2.0"), ("fp32", "step 1")),
        (Stepped(aware=True, remainders=False), ("fp32", "step 1")),
        (Stepped(aware=True, remainders=False, release="0.12.0"), ("int16", "step 1")),
        (Stepped(aware=True, master=FP16), ("fp16", "step 1")),
        (Stepped(aware=True, recipe="delayed"), ("int16", "step 1")),
        (Stepped(aware=True, recipe="blockwise"), ("fp32", "build")),
        (Stepped(aware=True, recipe="blockwise", release="0.12.0"), ("int16", "step 1")),
        (Stepped((FP32,)), ("fp32", "build")),
    ],
)
def test_who_keeps_the_master_weights(optimizer: Stepped, master: tuple[str, str]) -> None:
    found = buffers([Parameter("a", 1024, BF16)], Wrap(1, 1))
    held = [one for one in states(found, 0, optimizer) if one.kind is Kind.MASTER]
    assert [(one.dtype.name, one.since.value) for one in held] == [master]


def test_states_in_less_are_raised_to_fp32_for_the_step() -> None:
    both = Stepped((BF16, BF16), aware=True)
    assert raised((100, 50), both) == 0
    assert raised((100, 50), Stepped((BF16, BF16), aware=True, engine="2.12")) == 2 * 4 * 150
    assert raised((100, 50), Stepped((BF16, FP32), aware=True)) == 4 * 150
    assert raised((100,), Stepped((FP16, FP16), FP16, aware=True)) == 3 * 4 * 100
    assert raised((100,), Stepped()) == 0


@pytest.mark.parametrize(
    ("optimizer", "distributed", "said"),
    [
        (Stepped((BF16, BF16)), True, "precision-aware"),
        (Stepped(aware=True), False, "needs the distributed one"),
        (Stepped(aware=True, release="0.10.0"), True, "0.11"),
        (Stepped((FP32,), aware=True), True, "Adam alone"),
        (Stepped((FP8, FP8), aware=True), True, "fp8"),
        (Stepped((BF16, BF16), aware=True, engine="2.2"), True, "bf16"),
        (Stepped(aware=True, master=BF16), True, "fp32, fp16"),
    ],
)
def test_what_megatron_refuses(optimizer: Stepped, distributed: bool, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        states(laid(distributed=distributed), 0, optimizer)
