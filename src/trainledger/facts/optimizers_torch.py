"""PyTorch's own optimizers, with the implementations that frameworks put in their place.

What a step allocates was read in the sources named and confirmed with the profiler's allocator events on the CPU,
where foreach, loop and fused allocate as they do elsewhere.
"""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.optimizer_kinds import (
    Implementation,
    Kind,
    Optimizer,
    Scope,
    Shape,
    State,
    StepTensor,
    Temporary,
    When,
    Width,
)


def _torch(file: str) -> Source:
    return Source("PyTorch", f"torch/optim/{file}.py", "2.13")


ADAM_PY, SGD_PY, ADAFACTOR_PY, MUON_PY = _torch("adam"), _torch("sgd"), _torch("_adafactor"), _torch("_muon")
HF_ADAFACTOR = Source("Transformers", "src/transformers/optimization.py, Adafactor.step", "5.24.0")
APEX = Source("NVIDIA Apex", "apex/optimizers/fused_adam.py")
CPU_ADAM = Source("DeepSpeed", "deepspeed/ops/adam/cpu_adam.py")

CURRENT = Temporary(1, Scope.CURRENT)
CURRENT_TWICE = Temporary(2, Scope.CURRENT)
PREVIOUS = Temporary(1, Scope.PREVIOUS)
ALL = Temporary(1, Scope.ALL)
ALL_TWICE = Temporary(2, Scope.ALL)
L2_CURRENT = Temporary(1, Scope.CURRENT, when=When.L2)
L2_ALL = Temporary(1, Scope.ALL, when=When.L2)

MOMENTS = (State(Kind.FIRST), State(Kind.SECOND))
MOMENTUM = (State(Kind.MOMENTUM, width=Width.GRADIENT),)

FOREACH = Implementation("foreach", StepTensor.HOST, (ALL,), ADAM_PY)  # the square root of the second moment
FUSED = Implementation("fused", StepTensor.DEVICE, (), ADAM_PY)
APEX_FUSED = Implementation("apex-fused", StepTensor.NUMBER, (), APEX, Width.FP32)
CPU = Implementation("cpu", StepTensor.NUMBER, (), CPU_ADAM, Width.FP32)  # parameters and states on the host


def _adam_loop(*more: Temporary) -> Implementation:
    """Square root and quotient; the denominator of the parameter before."""
    return Implementation("loop", StepTensor.HOST, (CURRENT_TWICE, PREVIOUS, *more), ADAM_PY)


ADAMW_STEPS = (FOREACH, _adam_loop(), FUSED, APEX_FUSED, CPU)
# Adam's own weight decay makes one more copy of the gradient: in the loop it lives to the end of the parameter's
# update; in foreach it is freed before the square root is taken, so the largest sum stays one.
ADAM_STEPS = (FOREACH, _adam_loop(L2_CURRENT), FUSED, APEX_FUSED, CPU)
SGD_STEPS = (
    Implementation("foreach", StepTensor.NUMBER, (L2_ALL,), SGD_PY),
    Implementation("loop", StepTensor.NUMBER, (L2_CURRENT,), SGD_PY),
    Implementation("fused", StepTensor.NUMBER, (), SGD_PY),
)
# Options that only Transformers' own Adafactor has: their presence in a plan names the implementation.
ADAFACTOR_STEPS = (
    Implementation(
        "loop",
        StepTensor.HOST,
        (CURRENT, PREVIOUS),
        ADAFACTOR_PY,  # what runs unless foreach=True is asked for
    ),
    Implementation("foreach", StepTensor.HOST, (ALL,), ADAFACTOR_PY),
    Implementation(
        "transformers",
        StepTensor.NUMBER,
        (
            Temporary(2, Scope.CURRENT, Width.FP32),
            Temporary(2, Scope.CURRENT, Width.FP32, When.SIXTEEN_BIT),
            Temporary(1, Scope.PREVIOUS, Width.FP32),
        ),
        HF_ADAFACTOR,
        Width.GRADIENT_FP32,
        asked_by=("scale_parameter", "relative_step", "warmup_init", "clip_threshold", "decay_rate"),
    ),
)
# the update, two iterates of the orthogonalisation, the Gram matrix and its polynomial; foreach is refused
MUON_LOOP = Implementation(
    "loop",
    StepTensor.NUMBER,
    (
        Temporary(1, Scope.CURRENT, Width.GRADIENT),
        Temporary(2, Scope.CURRENT, Width.BF16),
        Temporary(2, Scope.SQUARE, Width.BF16),
    ),
    MUON_PY,
)


def _row(
    name: str, states: tuple[State, ...], foreach: tuple[Temporary, ...], loop: tuple[Temporary, ...], file: str
) -> Optimizer:
    source = _torch(file)
    steps = (
        Implementation("foreach", StepTensor.HOST, foreach, source),
        Implementation("loop", StepTensor.HOST, loop, source),
    )
    return Optimizer(name, states, steps, source)


ADAGRAD = _row("adagrad", (State(Kind.ACCUMULATOR),), (ALL_TWICE,), (CURRENT, PREVIOUS, L2_CURRENT), "adagrad")
RMS = (State(Kind.SECOND),)
RMS_STEP = ((ALL, L2_ALL), (CURRENT, PREVIOUS, L2_CURRENT))
TORCH_ROWS: tuple[Optimizer, ...] = (
    Optimizer("adamw", MOMENTS, ADAMW_STEPS, ADAM_PY),
    Optimizer("adam", MOMENTS, ADAM_STEPS, ADAM_PY),
    Optimizer("sgd", (), SGD_STEPS, SGD_PY),
    Optimizer("sgd-momentum", MOMENTUM, SGD_STEPS, SGD_PY),
    Optimizer("adafactor", (State(Kind.SECOND, Shape.FACTORED, Width.GRADIENT),), ADAFACTOR_STEPS, ADAFACTOR_PY),
    Optimizer("muon", MOMENTUM, (MUON_LOOP,), MUON_PY, fallback="adamw"),
    Optimizer(
        ADAGRAD.name,
        ADAGRAD.states,
        (*ADAGRAD.implementations, Implementation("fused", StepTensor.DEVICE, (), ADAGRAD.source)),
        ADAGRAD.source,
        eager=True,
    ),
    _row("rmsprop", RMS, *RMS_STEP, "rmsprop"),
    _row("rmsprop-momentum", (*RMS, State(Kind.MOMENTUM)), *RMS_STEP, "rmsprop"),
    _row("adamax", (State(Kind.FIRST), State(Kind.INFINITY)), (ALL, L2_ALL), (CURRENT, L2_CURRENT), "adamax"),
    _row("nadam", MOMENTS, (ALL,), (CURRENT_TWICE, PREVIOUS, L2_CURRENT), "nadam"),
    _row("radam", MOMENTS, (ALL,), (CURRENT_TWICE, L2_CURRENT), "radam"),
    _row("adadelta", (*RMS, State(Kind.DELTA)), (ALL_TWICE, L2_ALL), (CURRENT_TWICE, PREVIOUS, L2_CURRENT), "adadelta"),
    _row("asgd", (State(Kind.AVERAGE),), (ALL,), (L2_CURRENT,), "asgd"),
    _row(
        "rprop",
        (State(Kind.PREVIOUS), State(Kind.RATE, width=Width.GRADIENT)),
        (ALL, CURRENT_TWICE),
        (CURRENT_TWICE, CURRENT),
        "rprop",
    ),
)
