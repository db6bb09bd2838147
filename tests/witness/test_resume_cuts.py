"""What PyTorch's own planner asks for of stored shards, against what is counted: each that overlaps, whole."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from trainledger.answer.resume_cuts import Cut, read_of


def boxes(cut: Cut) -> list[ChunkStorageMetadata]:
    """Every rank's box."""
    parts = cut.tp if cut.along is not None else 1
    found = []
    for part in range(parts):
        for at in range(cut.shard):
            spans = [cut.span(dim, part, at) for dim in range(len(cut.shape))]
            sizes = torch.Size(high - low for low, high in spans)
            found.append(ChunkStorageMetadata(torch.Size(low for low, _ in spans), sizes))
    return found


@pytest.mark.parametrize("shape", [(96, 8), (97, 8), (7, 16)])
@pytest.mark.parametrize("before", [(None, 1, 4), (None, 1, 3), (1, 2, 2), (0, 2, 2)])
@pytest.mark.parametrize("after", [(None, 1, 2), (None, 1, 8), (1, 4, 1), (1, 2, 3)])
def test_the_planner_asks_for_the_same_boxes(
    shape: tuple[int, int], before: tuple[int | None, int, int], after: tuple[int | None, int, int]
) -> None:
    old, new = Cut(shape, *before), Cut(shape, *after)
    if before[0] == 0 and shape[0] % before[1]:
        pytest.skip("parts of unequal size are not cut")
    stored = [one for one in boxes(old) if one.sizes.numel()]
    metadata = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size(shape), stored)
    places = [(part, at) for part in range(new.tp if new.along is not None else 1) for at in range(new.shard)]
    for (part, at), wanted in zip(places, boxes(new), strict=True):
        held = read_of(old, new, part, at)
        items = create_read_items_for_chunk_list("w", metadata, [wanted]) if wanted.sizes.numel() else []
        offsets = {one.storage_index.offset for one in items}
        whole = [one for one in stored if one.offsets in offsets]
        assert held.read == sum(one.sizes.numel() for one in whole)
        assert len(held.of) == len(whole)
