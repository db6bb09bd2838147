"""The shorter way gives what the fake mode itself gives: for single operations, and for whole traces."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tests.evidence.trace.families import FAMILIES, PRECISIONS, RECOMPUTE, WORDS  # noqa: E402
from tests.plans import plan_of  # noqa: E402
from trainledger.answer.trace import job_of  # noqa: E402
from trainledger.evidence.trace.live import session  # noqa: E402
from trainledger.evidence.trace.live.plan_run import run_plan  # noqa: E402
from trainledger.evidence.trace.live.quick import INTO, NEW, OTHER, VIEW, Quick, kind_of  # noqa: E402
from trainledger.evidence.trace.record import Record  # noqa: E402

aten = torch.ops.aten
KINDS = {
    aten.mul.Tensor: NEW, aten._to_copy.default: NEW, aten.add_.Tensor: INTO, aten.transpose.int: VIEW,
    aten.slice.Tensor: VIEW, aten.detach.default: VIEW, aten.split.Tensor: OTHER, aten.lift_fresh.default: OTHER,
    aten._local_scalar_dense.default: OTHER, aten.index.Tensor: OTHER, aten.nonzero.default: OTHER,
    aten.native_dropout.default: OTHER, aten._foreach_add_.Scalar: OTHER, aten.unsqueeze_.default: OTHER,
}  # fmt: skip
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "sum of two": lambda x, y: (aten.add.Tensor, (x, y), {}),
    "sum with a number": lambda x, y: (aten.add.Tensor, (x, 1), {}),
    "the same number, another type": lambda x, y: (aten.add.Tensor, (x, 1.0), {}),
    "transposed first": lambda x, y: (aten.add.Tensor, (x.t(), x.t()), {}),
    "of a part": lambda x, y: (aten.mul.Tensor, (x[:, 1:3], y[:, 1:3]), {}),
    "spread": lambda x, y: (aten.clone.default, (y[:, :1].expand(4, 6),), {}),
    "product": lambda x, y: (aten.mm.default, (x, y.t()), {}),
    "cast": lambda x, y: (aten._to_copy.default, (x,), {"dtype": torch.bfloat16}),
    "cast to another": lambda x, y: (aten._to_copy.default, (x,), {"dtype": torch.float64}),
    "joined": lambda x, y: (aten.cat.default, ([x, y, x],), {}),
    "joined, fewer": lambda x, y: (aten.cat.default, ([x, y],), {}),
    "view": lambda x, y: (aten.view.default, (x, [2, 12]), {}),
    "view of a part": lambda x, y: (aten.slice.Tensor, (x, 1, 2, 5), {}),
    "no copy": lambda x, y: (aten._unsafe_view.default, (x, [24]), {}),
    "into": lambda x, y: (aten.add_.Tensor, (x, y), {}),
    "nothing": lambda x, y: (aten.sum.dim_IntList, (x[:0], [0]), {}),
}  # fmt: skip


@pytest.mark.parametrize(("func", "kind"), KINDS.items())
def test_kinds(func: Any, kind: str) -> None:
    assert kind_of(func) == kind


def seen(out: Any) -> tuple[Any, ...]:
    where = (out.untyped_storage().nbytes(), out.storage_offset(), out.device.type, out.layout)
    return tuple(out.shape), out.stride(), out.dtype, where, out.requires_grad


def test_single_operations() -> None:
    """Every call three times: unknown, known, and known for other tensors; never the result of another call."""
    mode = FakeTensorMode()
    quick = Quick(mode)
    for _ in range(3):
        for name, call in CALLS.items():
            with mode:
                x, y = torch.empty(4, 6), torch.empty(4, 6)
                func, args, kwargs = call(x, y)
                real, out = func(*args, **kwargs), quick(func, args, kwargs)
            assert seen(out) == seen(real), name
            shares = any(
                isinstance(one, torch.Tensor) and one.untyped_storage()._cdata == out.untyped_storage()._cdata
                for one in args
            )
            assert shares == (kind_of(func) in (VIEW, INTO) or name == "no copy"), name


def test_a_tensor_of_another_mode_goes_the_whole_way() -> None:
    quick = Quick(FakeTensorMode())
    out = quick(aten.add.Tensor, (torch.ones(2), torch.ones(2)), {})
    assert out.tolist() == [2.0, 2.0]


def shape_of(record: Record) -> tuple[Any, ...]:
    """All of a record but its times; deaths that follow each other in any order (autocast drops its copies so)."""
    stretches = []
    for moment, events in record.stretches:
        runs = [(dead, list(run)) for dead, run in groupby(events, lambda event: event < 0)]
        stretches.append((moment, [sorted(run) if dead else run for dead, run in runs]))
    return record.births, stretches, record.kernels, record.answers, record.notes, record.parameters


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "attention", "recompute", "precision"),
    [
        ("llama", "flash", "full", "pure"), ("gemma2", "eager", "none", "autocast"),
        ("gpt2", "efficient", "full", "fp32"),
        ("bert", "eager", "none", "pure"), ("qwen3", "package", "full", "autocast"),
    ],
)  # fmt: skip
def test_whole_traces(
    family: str, attention: str, recompute: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(
        FAMILIES[family],
        precision=PRECISIONS[precision],
        batch={"micro_batch": 2, "sequence": 128, "accumulation": 1},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0"},
            "recompute": RECOMPUTE[recompute],
            "attention": WORDS[attention],
        },
    )
    short = run_plan(plan, session.where_of(job_of(plan)))
    monkeypatch.setattr(session, "Quick", lambda mode: lambda func, args, kwargs: func(*args, **kwargs))
    whole = run_plan(plan, session.where_of(job_of(plan)))
    assert shape_of(short) == shape_of(whole)
