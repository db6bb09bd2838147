"""The test-side witness: a plain training script of real Transformers code, traced on a CPU as if on a CUDA device.

`trace` builds a small model from a config dict, runs `steps` optimizer steps and returns every storage's birth and
death in order. See `cuda_like` for what is emulated, `ledger` for how storages are followed.

    python -m tests.witness.tracer '{"model_type": "llama", ...}' --batch 1 --sequence 32 --phase backward
"""

from __future__ import annotations

import argparse
import gc
import json
import warnings
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from tests.witness.attention import composite
from tests.witness.cuda_like import handlers, like_cuda
from tests.witness.ledger import Event, Ledger, Watcher, rounded

__all__ = ["Event", "Options", "Phase", "Trace", "rounded", "trace"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw-foreach": {"foreach": True},
    "adamw-loop": {"foreach": False},
    "adamw-fused": {"fused": True},
}
PHASES = ("forward", "backward", "clip", "optimizer")


@dataclass(frozen=True)
class Options:
    """How to run; see `trace`."""

    batch: int
    sequence: int
    weights: str = "bf16"
    autocast: str | None = None
    attention: str = "sdpa"
    recompute: str = "none"
    steps: int = 2
    accumulation: int = 1
    optimizer: str | None = "adamw-foreach"
    head: str = "CausalLM"
    batch_tensors: tuple[str, ...] = ("input_ids", "labels")
    kernel: str = "flash"
    clip: float | None = None
    use_cache: bool = False


@dataclass(frozen=True)
class Phase:
    """One phase of one step (micro-batches numbered apart): raw bytes, and what lived at its first highest moment."""

    name: str
    step: int
    micro: int
    start: int
    peak: int
    end: int
    events: tuple[Event, ...]
    peak_live: tuple[Event, ...]
    end_live: tuple[Event, ...]


@dataclass
class Trace:
    """All events in order (those of phase "build" are the model's own tensors) and the phases."""

    events: list[Event] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    built: int = 0
    loss: float = 0.0

    def phase(self, name: str, step: int = -1, micro: int = -1) -> Phase:
        """The phase of that name: of the last step and micro-batch unless told otherwise; KeyError if there is none."""
        found = [p for p in self.phases if p.name == name and step in (-1, p.step) and micro in (-1, p.micro)]
        if not found:
            raise KeyError(name)
        return found[-1]

    def saved(self, step: int = -1, micro: int = -1) -> list[Event]:
        """Storages born in a forward phase that outlive it, the batch's own left out: the saved tensors and outputs."""
        phase = self.phase("forward", step, micro)
        mine = {e.key for e in phase.events if e.size > 0}
        return [e for e in phase.end_live if e.key in mine and e.module != "(batch)"]

    def saved_bytes(self, step: int = -1, micro: int = -1) -> int:
        return sum(e.size for e in self.saved(step, micro))


def trace(config: dict[str, Any], **options: Any) -> Trace:
    """Runs the script. Keyword arguments are the fields of `Options`.

    batch, sequence: of every micro-batch; weights: "bf16", "fp16", "fp32"; autocast: None, "bf16", "fp16"; attention:
    "sdpa" or "eager"; recompute: "none", "full", "full-reentrant"; optimizer: "adamw-foreach", "adamw-loop",
    "adamw-fused" or None; head: as in AutoModelFor<head>; kernel: "flash", "efficient", "cudnn", "math"; clip: the
    largest norm, or None for no clipping; use_cache: as the model's config. The config must name its model_type.
    """
    how = Options(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _Script(config, how).run()


def build(config: dict[str, Any], how: Options) -> Any:
    """The model, in training mode, its weights in `how.weights`."""
    import transformers

    transformers.logging.set_verbosity_error()
    body = dict(config)
    made = transformers.AutoConfig.for_model(body.pop("model_type"), **body)
    made.use_cache = how.use_cache
    auto = getattr(transformers, "AutoModelFor" + how.head)
    torch.manual_seed(0)
    model = auto.from_config(made, dtype=DTYPES[how.weights], attn_implementation=how.attention)
    model.train()
    if how.recompute != "none":
        kind = {"use_reentrant": how.recompute == "full-reentrant"}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kind)
    return model


class _Script:
    def __init__(self, config: dict[str, Any], how: Options) -> None:
        self.how, self.model = how, build(config, how)
        self.ledger, self.trace = Ledger(), Trace()
        names = {id(m): name or "(model)" for name, m in self.model.named_modules()}
        self.watcher = Watcher(self.ledger, names, handlers(), lambda: getattr(composite, "running", False))
        self.vocabulary = self.model.get_input_embeddings().weight.shape[0]
        self._open: tuple[str, int, int, int, int] | None = None

    def run(self) -> Trace:
        for name, tensor in [*self.model.named_parameters(), *self.model.named_buffers()]:
            self.ledger.see(tensor.data, "build", name)
        self.trace.built = self.ledger.bytes
        gc.collect()
        was, threads = gc.isenabled(), torch.get_num_threads()
        gc.disable()
        torch.set_num_threads(1)
        try:
            with ExitStack() as stack:
                stack.enter_context(like_cuda(self.how.kernel))
                stack.enter_context(self.watcher.modules())
                stack.enter_context(self.watcher)
                self.loop()
        finally:
            self.ledger.closed = True
            torch.set_num_threads(threads)
            if was:
                gc.enable()
        self.trace.events = self.ledger.events
        return self.trace

    def loop(self) -> None:
        how, params = self.how, list(self.model.parameters())
        optimizer = self.optimizer(params)
        for step in range(how.steps):
            self.ledger.step = step
            for micro in range(how.accumulation):
                self.enter("forward", step, micro)
                batch = self.batch()
                with self.autocast():
                    out = self.model(**batch)
                loss = out.loss if how.accumulation == 1 else out.loss / how.accumulation
                self.enter("backward", step, micro)
                loss.backward()
            if how.clip is not None:
                self.enter("clip", step, 0)
                torch.nn.utils.clip_grad_norm_(params, how.clip)
            self.enter("optimizer", step, 0)
            if optimizer is not None:
                self.watcher.host_scalars = how.optimizer != "adamw-fused"
                optimizer.step()
                self.watcher.host_scalars = False
            self.model.zero_grad(set_to_none=True)
        self.close()
        self.trace.loss = loss.item() * how.accumulation

    def optimizer(self, params: list[Any]) -> Any:
        return (
            None if self.how.optimizer is None else torch.optim.AdamW(params, lr=1e-3, **OPTIMIZERS[self.how.optimizer])
        )

    def autocast(self) -> Any:
        return nullcontext() if self.how.autocast is None else torch.autocast("cpu", DTYPES[self.how.autocast])

    def batch(self) -> dict[str, torch.Tensor]:
        """New tensors as `.to(device)` gives them: only the device copies are events."""
        made = {}
        for name in self.how.batch_tensors:
            with _disable_current_modes():
                made[name] = self.tensor(name)
            self.ledger.see(made[name], "to", "(batch)")
        return made

    def tensor(self, name: str) -> torch.Tensor:
        shape = (self.how.batch, self.how.sequence)
        if name == "labels" and self.how.head.endswith("Classification"):
            return torch.zeros(shape if self.how.head == "TokenClassification" else shape[:1], dtype=torch.int64)
        if name in ("input_ids", "labels"):
            return torch.randint(0, self.vocabulary, shape)
        if name in ("start_positions", "end_positions"):
            return torch.zeros(shape[:1], dtype=torch.int64)
        if name == "position_ids":
            return torch.arange(shape[1]).repeat(shape[0], 1)
        return (
            torch.ones(shape, dtype=torch.int64) if name == "attention_mask" else torch.zeros(shape, dtype=torch.int64)
        )

    def enter(self, name: str, step: int, micro: int) -> None:
        self.close()
        self.ledger.phase, self.watcher.last = name, ""
        if name == "forward":
            self.watcher.made_by.clear()
        self._open = (name, step, micro, len(self.ledger.events), self.ledger.bytes)
        self._live = dict(self.ledger.live)

    def close(self) -> None:
        if self._open is None:
            return
        name, step, micro, first, start = self._open
        events = tuple(self.ledger.events[first:])
        live, total, peak, at_peak = dict(self._live), start, start, dict(self._live)
        for event in events:
            total += event.size
            if event.size > 0:
                live[event.key] = event
            else:
                live.pop(event.key)
            if total > peak:
                peak, at_peak = total, dict(live)
        done = Phase(name, step, micro, start, peak, total, events, tuple(at_peak.values()), tuple(live.values()))
        self.trace.phases.append(done)
        self._open = None


def show(phase: Phase) -> None:
    print(f"== step {phase.step} micro {phase.micro} {phase.name}: {phase.start} -> peak {phase.peak} -> {phase.end}")
    total = phase.start
    for e in phase.events:
        total += e.size
        what = f"{e.op} {e.dtype}{list(e.shape)}" + (f" <{e.node}>" if e.node else "")
        print(f"{e.size:+12d} {total:12d}  #{e.key:<6d} {e.module or '-'}  {what}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.witness.tracer", description=__doc__.splitlines()[0])
    parser.add_argument("config", help="the model's config as JSON, or @FILE")
    for name in ("batch", "sequence"):
        parser.add_argument("--" + name, type=int, default=1 if name == "batch" else 32)
    for name in ("weights", "autocast", "attention", "recompute", "optimizer", "head", "kernel"):
        parser.add_argument("--" + name, default=getattr(Options, name))
    for name in ("steps", "accumulation"):
        parser.add_argument("--" + name, type=int, default=getattr(Options, name))
    parser.add_argument("--clip", type=float)
    parser.add_argument("--use-cache", action="store_true")
    parser.add_argument("--batch-tensors", type=lambda text: tuple(text.split(",")), default=Options.batch_tensors)
    parser.add_argument("--phase", action="append", choices=PHASES)
    parser.add_argument("--step", type=int, default=-1, help="which step to print; default the last")
    parser.add_argument("--peak", action="store_true", help="print what lives at the peak instead of events")
    args = vars(parser.parse_args())
    text, wanted, step, peak = args.pop("config"), args.pop("phase"), args.pop("step"), args.pop("peak")
    if text.startswith("@"):
        with open(text[1:]) as file:
            text = file.read()
    if args["optimizer"] == "none":
        args["optimizer"] = None
    found = trace(json.loads(text), **args)
    print(f"built {found.built}  loss {found.loss:.4f}  saved {found.saved_bytes()}")
    for phase in found.phases:
        if phase.step == (args["steps"] - 1 if step < 0 else step) and phase.name in (wanted or PHASES):
            if peak:
                print(f"== live at the peak {phase.peak} of {phase.name}")
                for e in phase.peak_live:
                    print(
                        f"{e.size:12d}  #{e.key:<6d} {e.phase:10s} {e.module or '-'}  {e.op} {e.dtype}{list(e.shape)}"
                    )
            else:
                show(phase)


if __name__ == "__main__":
    main()
