"""How long a compiled layer's buffers are held: by later ones that take them, and by the order of collectives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, DType
from trainledger.ledger.planned import Span, held
from trainledger.ledger.tape import Storage, Tape

WIDE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip


def tape(*sizes: int, dtypes: tuple[DType, ...] = ()) -> Tape:
    made = Tape()
    kinds = dtypes or (BF16,) * len(sizes)
    made.storages += [
        Storage.of((Axis(Dim.ELEMENTS, size),), kind, "") for size, kind in zip(sizes, kinds, strict=True)
    ]
    return made


def test_a_buffer_that_a_later_one_takes_is_held_till_then() -> None:
    events, at = held(tape(4096, 1024, 4096), [1, -1, 2, 3, -3, -2], [])
    assert events == [1, 2, -1, 3, -3, -2]
    assert [at(count) for count in (0, 1, 2, 3, 6)] == [0, 1, 1, 2, 6]


def test_another_dtype_or_size_takes_nothing_nor_does_what_others_allocate() -> None:
    given = [1, -1, 2, -2]
    assert held(tape(4096, 2048, dtypes=(BF16, FP32)), given, [])[0] == given
    assert held(tape(4096, 2048), given, [])[0] == given
    assert held(tape(4096, 4096), given, [Span("sdpa", 2, 3, False)])[0] == given


def test_what_the_graph_was_handed_is_not_taken() -> None:
    assert held(tape(4096, 4096), [-1, 2, -2], [])[0] == [-1, 2, -2]


def test_the_last_that_was_freed_is_taken_first() -> None:
    assert held(tape(*(4096,) * 3), [1, 2, -1, -2, 3], [])[0] == [1, 2, -1, -2, 3]
    assert held(tape(*(4096,) * 3, 1024), [1, 2, -1, -2, 4, 3], [])[0] == [1, 2, -1, 4, -2, 3]


def test_an_elementwise_kernel_writes_over_what_it_reads_last() -> None:
    given, span = [1, 2, -1, -2], Span("fused", 1, 2, False)
    assert held(tape(4096, 4096), given, [span])[0] == [1, -1, 2, -2]
    assert held(tape(4096, 4096), given, [])[0] == given


def test_what_a_collective_returned_waits_for_the_next() -> None:
    parts = [Span("all_gather", 0, 1, False), Span("reduce_scatter", 3, 4, False)]
    assert held(tape(4096, 1024, 2048), [1, 2, -1, 3, -2, -3], parts)[0] == [1, 2, 3, -1, -2, -3]


def most(torch: str, **parallel: Any) -> dict[str, int]:
    """The largest instants of a layer's forward and backward, less what lives longer (bytes)."""
    stack = {
        "framework": "torchtitan", "versions": {"torchtitan": "2025-02-14", "torch": torch}, "compile": True,
        "loss": "vocab-parallel", "recompute": {"kind": "full"},
    }  # fmt: skip
    given = {"strategy": "fsdp2", "world": 8, "dp": 2, "tp": 4, "sp": True, **parallel}
    batch = {"micro_batch": 4, "sequence": 4096}
    made = estimate(plan_of(WIDE, parallel=given, stack=stack, batch=batch)).ledger
    return {one.name: one.allocated for one in made.moments}


@pytest.mark.parametrize("moment", ["step 2: forward", "step 2: backward of layer 1"])
def test_until_a_release_collectives_and_buffers_hold_more(moment: str) -> None:
    whole = 2 * 4 * 4096 * 256  # one tensor of the whole sequence
    assert most("2.7")[moment] - most("2.9")[moment] >= whole
    assert most("2.7")[moment] > most("2.7", options={"async_tp": True})[moment]
