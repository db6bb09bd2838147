"""One trace from beginning to end: tensors without storage, the watcher, the moments, and accounts at the end."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from trainledger.base.problems import TraceError
from trainledger.evidence.trace.job import Job
from trainledger.evidence.trace.live import autocast, passes
from trainledger.evidence.trace.live.attention import AttentionSite
from trainledger.evidence.trace.live.ledger import Seen, StorageLedger
from trainledger.evidence.trace.live.quick import Quick
from trainledger.evidence.trace.live.watcher import RECOMPUTE, Hooks, Watcher, calibrate, local
from trainledger.evidence.trace.record import Answered, Birth, Record, Stretch
from trainledger.facts.kernel_sets import UNKNOWN_DEVICE, Multiprocessors
from trainledger.lines.line import Account
from trainledger.lines.moments import BACKWARD, CLIP, FORWARD, INIT, LOSS, OPTIMIZER, in_part
from trainledger.plan.lengths import pads

BATCH = "(batch)"
ROOT = "(model)"
BACK = "TORCH_CUDNN_SDPA_DEPRIORITIZED"


@dataclass(frozen=True, slots=True)
class Where:
    """Where the code would run: attention's site, workspace bytes of one thread's products, the device's processors;
    whether masks of the batch's tokens hide none."""

    site: AttentionSite = field(default_factory=AttentionSite)
    workspace: int = 0
    device: Multiprocessors = UNKNOWN_DEVICE
    full: bool = True


def where_of(job: Job) -> Where:
    """Where a job would run."""
    stack = None if job.plan is None else job.plan.stack
    word = "sdpa" if stack is None or stack.attention in (None, "eager", "unfused") else stack.attention
    back = stack is not None and BACK in stack.env
    release = job.torch or torch.__version__
    count, threads = job.processors
    device = Multiprocessors(count, threads, UNKNOWN_DEVICE.source)
    full = job.plan is None or not pads(job.plan)
    return Where(AttentionSite(word, release, job.architecture, back), job.workspace, device, full)


class Session:
    """A trace while it is made. Use `running` around the code, `enter` before each of its moments."""

    def __init__(self, where: Where, report: Callable[[str], None] = lambda text: None) -> None:
        self.where, self.report = where, report
        self.ledger = StorageLedger()
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.names: dict[int, str] = {}
        self.notes: list[str] = []
        self.parameters: dict[str, Any] = {}
        self.trained: tuple[int, int] = (0, 0)
        self.head = ""
        self.layers: dict[str, int] = {}  # by path, from 1
        self.seconds: dict[str, float] = {}
        self.watcher: Any = None
        self._held: list[Any] = []
        self.auto: Any = None
        self.step = 0
        self._moment = ("", 0.0)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Everything inside is traced. Raises TraceError for code that fails, with the module that was running."""
        site = self.where.site
        hooks = Hooks(
            passes.handlers(site), passes.insides(site, self.where.device), lambda: site.composite, self.where.workspace
        )
        was = gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            with ExitStack() as stack:
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                stack.enter_context(passes.like_cuda(site))
                stack.enter_context(passes.no_capture())
                stack.enter_context(autocast.asked_of_the_label())
                stack.enter_context(passes.foreach_by_default())
                stack.enter_context(self.mode)
                self.watcher = Watcher(self.ledger, self.names, hooks, calibrate())
                self.watcher.entered, self.watcher.full = self._entered, self.where.full
                self.watcher.run = Quick(self.mode)
                if self.auto is not None:
                    stack.enter_context(self.auto.watching(self.watcher))
                stack.enter_context(self.watcher.modules())
                stack.enter_context(self.watcher)
                yield
        except (KeyboardInterrupt, TraceError):
            raise
        except Exception as error:
            raise TraceError(self._told(error)) from error
        finally:
            self.ledger.closed = True
            if was:
                gc.enable()

    def _told(self, error: Exception) -> str:
        at = self.watcher.failing if self.watcher else ""
        text = " ".join(str(error).split())
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        moment = self._moment[0] or INIT
        return f"{at or 'the code'} failed at {moment}: {what}"

    def adopt(self, model: Any, added: bool = False) -> None:
        """Parameters and buffers of a model without storage are born, in the model's order. `added`: trained weights
        were added to a model that was there (an adapter), so they come last."""
        self.names.update({id(module): name or ROOT for name, module in model.named_modules()})
        self.parameters = dict(model.named_parameters())
        self.head = _head(model)
        self.layers = {self.names[id(one)]: number for number, one in enumerate(_layers(model), 1)}
        owned = [(Account.WEIGHTS, name, one) for name, one in model.named_parameters()]
        owned += [(Account.BUFFERS, name, one) for name, one in model.named_buffers()]
        if added:
            owned.sort(key=lambda one: one[2].requires_grad)
        for account, name, tensor in owned:
            self.own(account, name, tensor)
        count = sum(one.numel() for one in self.parameters.values())
        self.trained = (count, sum(one.numel() for one in self.parameters.values() if one.requires_grad))

    def own(self, account: Account, name: str, tensor: Any) -> None:
        """A tensor of a known account; born now if it was not."""
        number = self.ledger.see(local(tensor.detach()), account.value, name)
        self.ledger.settle(number, account.value)
        self.ledger.labels[number] = (name, account.value)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: Any = torch.int64) -> Any:
        """A tensor of the batch, as it arrives on the device."""
        with torch.utils._python_dispatch._disable_current_modes(), self.mode:
            made = torch.empty(shape, dtype=dtype)
        self.own(Account.INPUTS, name, made)
        return made

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What happens inside is no part of the run."""
        was = self.watcher.paused if self.watcher else False
        if self.watcher:
            self.watcher.paused = True
        try:
            yield
        finally:
            if self.watcher:
                self.watcher.paused = was

    def keep(self, held: Any) -> None:
        """Something that a script's names hold to the end."""
        self._held.append(held)

    def finish(self) -> None:
        """The code is done: what backward left is a gradient."""
        if self.ledger.phase == BACKWARD:
            self.backwarded()

    def enter(self, phase: str, step: int = 0) -> None:
        """A moment begins: `step` counts from 1; 0 is before the first."""
        self._leave()
        self.step = step
        moment = in_part(f"step {step}", phase) if step else phase
        self._moment = (moment, time.perf_counter())
        self.ledger.enter(moment, phase)
        if self.watcher is not None:
            self.watcher.last = ""
            self.watcher.host_scalars = phase == OPTIMIZER
            if phase == FORWARD:
                self.watcher.made_by.clear()
        self.report(moment)

    def _leave(self) -> None:
        moment, since = self._moment
        if moment:
            self.seconds[moment] = self.seconds.get(moment, 0.0) + time.perf_counter() - since

    def _entered(self, module: Any, name: str, depth: int) -> None:
        if name in self.layers:
            self.report(f"{self._moment[0]}, layer {self.layers[name]} of {len(self.layers)}")
        if self.auto is not None and not depth:
            self.auto.called(module)
            name = self.names.get(id(module), "")
        if name == self.head and self.ledger.phase == FORWARD:
            self._leave()
            self._moment = (in_part(f"step {self.step}", LOSS), time.perf_counter())
            self.ledger.enter(self._moment[0], LOSS)

    def forwarded(self) -> None:
        """Forward and loss are done: what lives of them is kept for backward."""
        for number in self.ledger.live():
            phase = self.ledger.births[number].phase
            if phase in (FORWARD, LOSS):
                self.ledger.settle(number, (Account.LOGITS if phase == LOSS else Account.ACTIVATIONS).value)

    def backwarded(self) -> None:
        """Backward is done: what parameters hold as gradients are gradients."""
        for name, one in self.parameters.items():
            if one.grad is not None:
                number = self.ledger.number(local(one.grad))
                self.ledger.settle(number, Account.GRADIENTS.value, again=True)
                self.ledger.labels[number] = (name, "gradient")

    def stepped(self, optimizer: Any) -> None:
        """The optimizer has stepped: its states are those that its `state` holds."""
        names = {id(one): name for name, one in self.parameters.items()}
        for one, state in optimizer.state.items():
            for key, tensor in state.items():
                if isinstance(tensor, torch.Tensor):
                    number = self.ledger.number(local(tensor))
                    self.ledger.settle(number, Account.OPTIMIZER.value)
                    self.ledger.labels[number] = (names.get(id(one), ""), str(key))

    def record(self) -> Record:
        """What was traced. Call it after `running`."""
        self._leave()
        births = tuple(self._birth(number, one) for number, one in enumerate(self.ledger.births))
        answers = self.watcher.answers if self.watcher else {}
        return Record(
            births=births,
            stretches=tuple(Stretch(moment, tuple(events)) for moment, events in self.ledger.stretches if events),
            kernels=dict(self.where.site.calls),
            answers=tuple(Answered(op, module, value, count) for (op, module, value), count in answers.items()),
            notes=tuple(self.notes),
            versions={"torch": torch.__version__, **_transformers()},
            parameters=self.trained,
            seconds=dict(self.seconds),
        )

    def _birth(self, number: int, one: Seen) -> Birth:
        account = self.ledger.accounts.get(number) or self._account(one).value
        module, op = self.ledger.labels.get(number, (one.module, one.op))
        return Birth(one.size, account, module, op, one.dtype, one.shape, one.stream)

    def _account(self, one: Seen) -> Account:
        if one.phase in (FORWARD, LOSS):
            return Account.LOGITS if one.phase == LOSS else Account.FORWARD
        if one.phase == BACKWARD:
            if one.node == RECOMPUTE:
                return Account.RECOMPUTED
            return Account.LOGITS if one.module in (self.head, ROOT) and one.module else Account.BACKWARD
        return {CLIP: Account.CLIP, OPTIMIZER: Account.STEP}.get(one.phase, Account.BUFFERS)


def _head(model: Any) -> str:
    """The path of the module that makes logits; empty where the model does not say."""
    get = getattr(model, "get_output_embeddings", None)
    try:
        head = get() if callable(get) else None
    except (AttributeError, NotImplementedError):
        head = None
    return next((name for name, module in model.named_modules() if head is not None and module is head), "")


def _layers(model: Any) -> list[Any]:
    """The model's layers: the longest list of modules of one class; none where it has no such list."""
    lists = [list(one) for one in model.modules() if isinstance(one, torch.nn.ModuleList)]
    alike = [one for one in lists if len({type(layer) for layer in one}) == 1]
    return max(alike, key=len, default=[])


def _transformers() -> dict[str, str]:
    import sys

    found = sys.modules.get("transformers")
    return {"transformers": str(found.__version__)} if found is not None else {}


def without_storage(model: Any, mode: Any) -> None:
    """Replace a model's parameters and buffers by tensors of the same shape without storage; shared ones stay shared.

    The model may lie on the meta device or anywhere else.
    """
    made: dict[int, Any] = {}
    with mode, torch.no_grad():
        for module in model.modules():
            for name, one in list(module._parameters.items()):
                if one is not None:
                    if id(one) not in made:
                        empty = torch.empty(one.shape, dtype=one.dtype, device="cpu")
                        made[id(one)] = torch.nn.Parameter(empty, requires_grad=one.requires_grad)
                    module._parameters[name] = made[id(one)]
            for name, one in list(module._buffers.items()):
                if one is not None:
                    if id(one) not in made:
                        made[id(one)] = torch.empty(one.shape, dtype=one.dtype, device="cpu")
                    module._buffers[name] = made[id(one)]
