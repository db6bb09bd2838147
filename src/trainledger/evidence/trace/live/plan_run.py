"""The run of a plan: its model by Transformers, without weights, then steps as a plain training script makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from trainledger.base.problems import TraceError
from trainledger.evidence.trace.live import package
from trainledger.evidence.trace.live.checkpoints import recompute_layers
from trainledger.evidence.trace.live.dtypes import TORCH
from trainledger.evidence.trace.live.optimizers import counts_on_host, make_optimizer
from trainledger.evidence.trace.live.session import BATCH, Session, Where, without_storage
from trainledger.evidence.trace.record import Record
from trainledger.facts.peft_methods import TRAINED_RANKS
from trainledger.facts.towers import BESIDE
from trainledger.facts.versions import at_least
from trainledger.lines.moments import BACKWARD, CLIP, FORWARD, INIT, OPTIMIZER
from trainledger.model.build import upcasts
from trainledger.model.names import fits
from trainledger.model.prompts import PREFIX_KIND, PROMPT_KINDS
from trainledger.plan.lengths import pads
from trainledger.plan.schema import Plan

STEPS = (1, 1 + 1)  # the first, in which states appear, and one as every later one
METHODS = {  # PEFT's configuration, and its names of rank and dropout where the method has them
    "lora": ("LoraConfig", "r", "lora_dropout"),
    "dora": ("LoraConfig", "r", "lora_dropout"),
    "adalora": ("AdaLoraConfig", "", "lora_dropout"),
    "ia3": ("IA3Config", "", ""),
    "vera": ("VeraConfig", "r", "vera_dropout"),
    "loha": ("LoHaConfig", "r", ""),
    "lokr": ("LoKrConfig", "r", ""),
    "oft": ("OFTConfig", "", ""),
    "boft": ("BOFTConfig", "", "boft_dropout"),
    "fourierft": ("FourierFTConfig", "", ""),
    "ln-tuning": ("LNTuningConfig", "", ""),
    "prompt-tuning": ("PromptTuningConfig", "", ""),
    "p-tuning": ("PromptEncoderConfig", "", ""),
    "prefix-tuning": ("PrefixTuningConfig", "", ""),
    "trainable-tokens": ("TrainableTokensConfig", "", ""),
}
RANKS = ".ranknum."  # AdaLoRA's count of ranks
ADAPTER, WHOLE = ".default", ".modules_to_save."  # in names of an adapter's weights, and of copies trained whole
STEPS_OF_ADALORA = sum(STEPS)
DROPPED = ("name", "model_type", "architectures", "torch_dtype", "dtype", "transformers_version", *BESIDE)


def run_plan(plan: Plan, where: Where, report: Callable[[str], None] = lambda text: None) -> Record:
    """Trace a resolved plan. Raises TraceError, one line that says what failed and where."""
    session = Session(where, report)
    report("model")
    try:
        model = build_model(plan)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(f"Transformers cannot build the model: {type(error).__name__}: {_line(error)}") from error
    without_storage(model, session.mode)
    if plan.parallel.strategy == "fsdp2":
        from trainledger.evidence.trace.live import fsdp

        with fsdp.pretend_ranks(plan.parallel.world) as mesh, fsdp.watched(session):
            _run(plan, session, model, lambda: fsdp.shard(plan, model, mesh))
    else:
        _run(plan, session, model, lambda: None)
    return session.record()


def _run(plan: Plan, session: Session, model: Any, prepare: Callable[[], None]) -> None:
    with session.running():
        session.enter(INIT)
        with session.unseen():
            prepare()
        session.adopt(model, plan.adapter is not None)
        script = Script(plan, session, model)
        script.run()
        session.keep(script)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def build_model(plan: Plan) -> Any:
    """The plan's model on the meta device, in training mode, with its dtypes, trained weights and recompute."""
    import transformers

    transformers.logging.set_verbosity_error()
    keys = {name: value for name, value in plan.keys().items() if name not in DROPPED}
    kind = plan.keys()["model_type"]
    config = transformers.AutoConfig.for_model(kind, **keys)
    config.use_cache = bool(plan.stack.options.get("use_cache", False))
    weights = TORCH[plan.precision.weights]
    attention = "eager" if plan.stack.attention in ("eager", "unfused") else "sdpa"
    if plan.stack.attention == "flash":
        attention = package.register()
    with torch.device("meta"):
        made = _class(plan, transformers).from_config(config, dtype=weights, attn_implementation=attention)
    model: Any = made
    _norms(plan, model)
    if plan.adapter is not None:
        model = _adapted(plan, model)
    else:
        _freeze(plan, model)
    model.train()
    _undrawn(model)
    recompute_layers(plan, model)
    return model


def _class(plan: Plan, transformers: Any) -> Any:
    """The class that `architectures` names, or the language model's."""
    given = plan.keys().get("architectures") or [""]
    for suffix in ("ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"):
        if str(given[0]).endswith(suffix):
            return getattr(transformers, "AutoModel" + suffix)
    return transformers.AutoModelForCausalLM


# whose own parameters, and taps under the name given, go with norms
MIXERS = {"GatedDeltaNet": "conv1d", "ShortConv": "conv"}


def _norms(plan: Plan, model: Any) -> None:
    given = plan.precision.norms
    if given is None or given == plan.precision.weights:
        return
    for module in model.modules():
        kind = type(module).__name__
        if "norm" in kind.lower():
            module.to(TORCH[given])
        taps = next((name for mixer, name in MIXERS.items() if kind.endswith(mixer)), None)
        if taps:
            getattr(module, taps).to(TORCH[given])
            for one in module.parameters(recurse=False):
                one.data = one.data.to(TORCH[given])


def _freeze(plan: Plan, model: Any) -> None:
    """What no pattern means is not trained; of a weight with two names either counts."""
    given = plan.trainable
    if given == "all":
        return
    patterns = () if given == "none" else (given,) if isinstance(given, str) else given
    model.requires_grad_(False)
    for name, one in model.named_parameters(remove_duplicate=False):
        if fits(name, patterns):
            one.requires_grad_(True)
            one.data = one.data.float() if upcasts(plan) else one.data


def _adapted(plan: Plan, model: Any) -> Any:
    """The model with its adapter by PEFT. Raises TraceError where PEFT is missing or the method is not known."""
    try:
        import peft
    except ImportError:
        missing = "the plan has an adapter and peft is not installed: pip install 'trainledger[trace]'"
        raise TraceError(missing) from None
    given = plan.adapter
    assert given is not None
    if given.kind not in METHODS:
        raise TraceError(f"adapter {given.kind}: {', '.join(METHODS)} can be traced so far")
    name, rank, dropout = METHODS[given.kind]
    targets = given.targets if given.targets is None or isinstance(given.targets, str) else list(given.targets)
    known: dict[str, Any] = {}
    if given.kind not in (*PROMPT_KINDS, PREFIX_KIND):
        known = {"target_modules": targets}
    known |= {"modules_to_save": list(given.train_extra)} if given.train_extra else {}
    known |= {rank: given.r} if rank and given.r else {}
    known |= {dropout: given.dropout} if dropout else {}
    known |= {"use_dora": True} if given.kind == "dora" else {}
    known |= {"total_step": STEPS_OF_ADALORA} if given.kind == "adalora" else {}
    options = {key: value for key, value in given.options.items() if key != "autocast_adapter_dtype"}
    task = "CAUSAL_LM" if hasattr(model, "prepare_inputs_for_generation") else None
    config = getattr(peft, name)(task_type=task, **known, **options)
    with torch.device("meta"):
        made = peft.get_peft_model(model, config, autocast_adapter_dtype=False, low_cpu_mem_usage=True)
    for name, one in made.named_parameters():
        if RANKS in name and at_least(plan.stack.versions.get("peft"), TRAINED_RANKS.since):  # as off the meta device
            one.requires_grad_(True)
        if one.requires_grad and ADAPTER in name and WHOLE not in name:  # others keep their own, as in PEFT's cast
            one.data = one.data.to(TORCH[given.dtype])
    for name, one in made.named_buffers():
        if name.endswith(ADAPTER) and one.is_floating_point():  # VeRA's shared pair
            one.data = one.data.to(TORCH[given.dtype])
    return made


def _undrawn(model: Any) -> None:
    """LoHa and LoKr run where a draw is above their dropout: above 0 each is, of which a trace knows nothing."""
    for one in model.modules():
        if hasattr(one, "module_dropout") and not any((*one.module_dropout.values(), *one.rank_dropout.values())):
            one.training = False


class Script:
    """The training loop: forward, loss, backward of every micro-batch, clipping, the optimizer's step."""

    def __init__(self, plan: Plan, session: Session, model: Any) -> None:
        self.plan, self.session, self.model = plan, session, model
        self.keeps = plan.stack.options.get("zero_grad_set_to_none") is False
        self.outputs = bool(plan.stack.options.get("keep_outputs", False))
        self.loss: Any = None
        self.kept: Any = None
        self.optimizer: Any = None
        self.held: Any = None

    def run(self) -> None:
        """Two steps: the first, in which states appear, and one as every later one."""
        plan, session = self.plan, self.session
        params = [one for one in self.model.parameters() if one.requires_grad]
        if not params:
            raise TraceError("trainable: nothing is trained, so there is no step to trace")
        session.watcher.host_scalars = True  # one that makes its states as it is built counts steps there
        optimizer = self.optimizer = make_optimizer(plan, params)
        session.watcher.counts_on_host = counts_on_host(optimizer)
        scaler = self._scaler()
        session.enter(FORWARD, 1)
        batch = self.held = self.batch()
        for step in STEPS:
            for micro in range(plan.batch.accumulation):
                if step > 1 or micro:
                    session.enter(FORWARD, step)
                self._synced(micro + 1 == plan.batch.accumulation)
                self._micro(step, batch, scaler)
            if plan.optimizer.grad_clip is not None:
                session.enter(CLIP, step)
                if scaler is not None:
                    scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(params, plan.optimizer.grad_clip, foreach=True)
            session.enter(OPTIMIZER, step)
            if scaler is None:
                optimizer.step()
            else:
                scaler.step(optimizer)
                scaler.update()
            session.stepped(optimizer)
            optimizer.zero_grad(set_to_none=not self.keeps)

    def _synced(self, last: bool) -> None:
        """FSDP2 reduces gradients in this micro-batch, or leaves them whole."""
        if self.plan.parallel.strategy == "fsdp2" and self.plan.batch.accumulation > 1:
            from trainledger.evidence.trace.live.fsdp import waits

            self.model.set_requires_gradient_sync(last or not waits(self.plan))

    def _micro(self, step: int, batch: Mapping[str, Any], scaler: Any) -> None:
        session = self.session
        with self._autocast():
            if self.outputs:
                self.kept = self.model(**batch)
                self.loss = self.kept.loss
            else:
                self.loss = self.model(**batch).loss
        if self.plan.batch.accumulation > 1:
            self.loss = self.loss / self.plan.batch.accumulation
        session.forwarded()
        session.enter(BACKWARD, step)
        (self.loss if scaler is None else scaler.scale(self.loss)).backward()
        session.backwarded()

    def _scaler(self) -> Any:
        return torch.amp.GradScaler("cpu") if self.plan.precision.grad_scaler else None

    @contextmanager
    def _autocast(self) -> Iterator[None]:
        precision = self.plan.precision
        with ExitStack() as stack:
            if precision.autocast:
                stack.enter_context(torch.autocast("cpu", TORCH[precision.compute]))
            yield

    def batch(self) -> dict[str, Any]:
        """The batch's tensors; labels are the token ids themselves unless the plan lists its tensors. Padded rows bring
        a mask."""
        shape = (self.plan.batch.micro_batch, self.plan.batch.sequence)
        own = ["input_ids", "attention_mask"] if pads(self.plan) else ["input_ids"]
        names = self.plan.stack.options.get("batch_tensors") or own
        made = {name: self.session.tensor(f"{BATCH} {name}", shape) for name in names}
        if "labels" not in made:
            made["labels"] = made["input_ids"]
        return made
