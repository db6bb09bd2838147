"""What PyTorch's own pipeline holds after an evaluation, run by two processes."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

MICRO, WIDTH, STAGES = 4, 8, 2


def loss(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (out - target).pow(2).mean()


def run(rank: int, folder: str) -> None:
    """Two training steps and an evaluation of one stage; writes what its caches hold after either."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=STAGES)
    stage = PipelineStage(torch.nn.Linear(WIDTH, WIDTH), rank, STAGES, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO, loss_fn=loss)
    batch = torch.randn(MICRO, WIDTH)
    held = []
    for call in (schedule.step, schedule.step, schedule.eval):
        with torch.set_grad_enabled(call != schedule.eval):
            call(batch) if rank == 0 else call(target=batch, losses=[])
        held.append(len(stage.fwd_cache))
    same = rank == 0 or all(
        stage.fwd_cache[at][1][0].data_ptr() == stage.args_recv_info[at][0].buffer.data_ptr() for at in range(MICRO)
    )
    Path(folder, f"{rank}.json").write_text(json.dumps([held, len(stage.output_chunks), same]), encoding="utf-8")
    dist.destroy_process_group()


def test_a_stage_holds_what_every_evaluated_micro_batch_took_and_left(tmp_path: Path) -> None:
    """After a training step nothing; after an evaluation each output, and each input in the buffer that it came in; the
    last stage's outputs are those that are joined."""
    processes.spawn(run, args=(str(tmp_path),), nprocs=STAGES)
    found = [json.loads((tmp_path / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(STAGES)]
    assert found == [[[0, 0, MICRO], 0, True], [[0, 0, MICRO], MICRO, True]]
