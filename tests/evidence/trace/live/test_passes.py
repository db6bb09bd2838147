"""Each pass by itself: what it makes differ from a CPU's own rule, as CUDA has it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from trainledger.evidence.trace.live import passes  # noqa: E402
from trainledger.evidence.trace.live.attention import AttentionSite  # noqa: E402
from trainledger.evidence.trace.live.session import Session, Where  # noqa: E402
from trainledger.evidence.trace.record import Birth  # noqa: E402
from trainledger.facts.kernel_sets import MULTIPROCESSORS  # noqa: E402
from trainledger.lines.moments import FORWARD, INIT  # noqa: E402

F = torch.nn.functional


def births(code: Any, site: AttentionSite | None = None) -> list[Birth]:
    """What a function makes after building, called in a trace with a tensor that needs a gradient."""
    session = Session(Where(site or AttentionSite(torch="2.13.0", architecture="sm80")))
    with session.running():
        session.enter(INIT)
        make = code()
        session.enter(FORWARD, 1)
        session.keep(make())
    record = session.record()
    numbers = [event - 1 for stretch in record.stretches[1:] for event in stretch.events if event > 0]
    return [record.births[number] for number in numbers]


def half(*shape: int) -> Any:
    return torch.empty(shape, dtype=torch.bfloat16, requires_grad=True)


def test_dropout_keeps_a_bool_mask() -> None:
    def code() -> Any:
        x = half(4, 8)
        return lambda: F.dropout(x, 0.1, True)

    assert [one.dtype for one in births(code)] == ["bool", "bfloat16"]  # in the order in which the kernel makes them


def test_layer_norm_keeps_fp32_statistics() -> None:
    def code() -> Any:
        x, w = half(4, 8), half(8)
        return lambda: F.layer_norm(x, (8,), w, w)

    assert [(one.dtype, one.shape) for one in births(code)[1:]] == [("float32", (4, 1))] * 2


def test_gradients_of_norms_are_laid_out_anew() -> None:
    """Also of an input that is a view by head: the product before it then needs no copy, or does."""
    x, w = torch.empty((2, 4, 6, 8), device="meta").transpose(1, 2), torch.empty(8, device="meta")
    assert passes.layer_norm_backward(x, x, (8,), None, None, w, w, (True,) * 3)[0].is_contiguous()
    assert passes.fused_rms_norm_backward(x, x, (8,), None, w, (True, True))[0].is_contiguous()
    assert passes.fused_rms_norm(x, (8,), w, None)[0].is_contiguous()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_grouped_products_take_any_float(dtype: Any) -> None:
    def code() -> Any:
        x = torch.empty((16, 8), dtype=dtype, requires_grad=True)
        w = torch.empty((4, 8, 32), dtype=dtype, requires_grad=True)
        ends = torch.empty(4, dtype=torch.int32)
        return lambda: torch._grouped_mm(x, w, ends).sum().backward()

    made = [one.shape for one in births(code) if one.op == "_grouped_mm"]
    assert made == [(16, 32), (4, 8, 32), (16, 8)]


@pytest.mark.parametrize(("release", "fused"), [("2.7.1", False), ("2.13.0", True)])
def test_rms_norm_is_one_kernel_from_a_release_on(release: str, fused: bool) -> None:
    def code() -> Any:
        x, w = half(4, 8), half(8)
        return lambda: F.rms_norm(x, (8,), w)

    made = births(code, AttentionSite(torch=release))
    assert ([one.op for one in made] == ["_fused_rms_norm"] * 2) is fused


@pytest.mark.parametrize(("dtype", "copies"), [(torch.float16, 0), (torch.bfloat16, 1)])
def test_softmax_reads_fp16_as_fp32(dtype: Any, copies: int) -> None:
    def code() -> Any:
        x = torch.empty((4, 8), dtype=dtype)
        return lambda: torch.softmax(x, -1, dtype=torch.float32)

    assert [one.op for one in births(code)] == ["_to_copy"] * copies + ["_softmax"]


def test_autocast_runs_cuda_lists() -> None:
    """A norm's pow runs in fp32 on CUDA, in the input's dtype on a CPU."""

    def code() -> Any:
        x = half(4, 8)

        def run() -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return x.pow(2), x @ x.t()

        return run

    made = {one.op: one.dtype for one in births(code)}
    assert made["pow.Tensor_Scalar"] == "float32"
    assert made["mm"] == "bfloat16"


@pytest.mark.parametrize(
    ("site", "mask", "kernel"),
    [
        (AttentionSite(torch="2.13.0", architecture="sm80"), False, "flash"),
        (AttentionSite(torch="2.13.0", architecture="sm90"), False, "cudnn"),
        (AttentionSite(torch="2.13.0", architecture="sm90", deprioritised=True), False, "flash"),
        (AttentionSite(torch="2.13.0", architecture="sm80"), True, "efficient"),
        (AttentionSite("math", torch="2.13.0", architecture="sm80"), False, "math"),
    ],
)
def test_attention_is_cudas_choice(site: AttentionSite, mask: bool, kernel: str) -> None:
    def code() -> Any:
        q = torch.empty((1, 4, 64, 32), dtype=torch.bfloat16, requires_grad=True)
        bias = torch.empty((1, 1, 64, 64), dtype=torch.bfloat16) if mask else None
        return lambda: F.scaled_dot_product_attention(q, q, q, bias)

    made = births(code, site)
    assert dict(site.calls) == {kernel: 1}
    statistics = [one.shape for one in made if one.dtype == "float32"]
    assert ((1, 4, 64) in statistics or (1, 4, 64, 1) in statistics) is (kernel != "math")


def test_optimizers_run_by_foreach() -> None:
    from torch.optim import optimizer

    seen = []

    def code() -> Any:
        x = half(4)
        return lambda: seen.append(optimizer._default_to_fused_or_foreach([x], False, False))

    births(code)
    assert seen == [(False, True)]
    assert "cpu" not in optimizer._get_foreach_kernels_supported_devices()


def test_transformers_builds_no_mask() -> None:
    config = transformers.AutoConfig.for_model(
        "llama", hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=64
    )

    def code() -> Any:
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        ids = torch.zeros((1, 16), dtype=torch.int64)
        return lambda: model(input_ids=ids, attention_mask=torch.ones_like(ids))

    site = AttentionSite(torch="2.13.0", architecture="sm80")
    births(code, site)
    assert dict(site.calls) == {"flash": 1}


@pytest.mark.parametrize(("dropped", "pieces"), [((), True), ((0.0, True), True), ((0.1, True), False)])
def test_the_flash_kernel_keeps_sums_of_pieces_but_with_dropout(dropped: tuple[float, ...], pieces: bool) -> None:
    inside = passes.insides(AttentionSite(torch="2.13.0", architecture="sm80"), MULTIPROCESSORS["a100-80gb"])
    x = torch.empty((2, 4, 1024, 256), dtype=torch.bfloat16, device="meta")
    assert bool(inside("_scaled_dot_product_flash_attention", (x, x, x, *dropped), None)) is pieces


@pytest.mark.parametrize(("dims", "counts"), [((0, 1), True), ((1,), False), ((0, 1, 2), False)])
def test_a_sum_over_leading_dims_takes_partial_sums(dims: tuple[int, ...], counts: bool) -> None:
    """As one over the rows of a matrix: the dims lie behind one another."""
    inside = passes.insides(AttentionSite(torch="2.13.0", architecture="sm80"), MULTIPROCESSORS["a100-80gb"])
    x = torch.empty((4, 2048, 1024), dtype=torch.bfloat16, device="meta")
    assert bool(inside("sum.dim_IntList", (x, list(dims)), x.sum(dims))) is counts
