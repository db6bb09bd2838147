"""Optimizers of bitsandbytes, torchao and single packages."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.dtypes import FP8, FP32, UINT8, DType
from trainledger.facts.optimizer_kinds import (
    Blocks,
    Implementation,
    Kind,
    Optimizer,
    Paging,
    Shape,
    State,
    StepTensor,
    Temporary,
    When,
    Width,
)
from trainledger.facts.optimizers_torch import ALL, ALL_TWICE, CURRENT, CURRENT_TWICE, MOMENTS, PREVIOUS

LION_PY = Source("lion-pytorch", "lion_pytorch/lion_pytorch.py", "0.2.5")
GALORE_PY = Source("galore-torch", "galore_torch/{adamw,adafactor,galore_projector}.py", "1.0")
APOLLO_PY = Source("apollo-torch", "apollo_torch/apollo.py and random_projector.py", "1.0.3")
FREE_PY = Source("schedulefree", "schedulefree/{adamw,radam,sgd}_schedulefree.py", "1.4.1")
ZOO_PY = Source("pytorch-optimizer", "pytorch_optimizer/optimizer/{adan,came,lamb,prodigy,sophia}.py", "4.1.0")
OPTIMI_PY = Source("torch-optimi", "optimi/stableadamw.py", "0.3.3")
LOMO_PY = Source("lomo-optim", "lomo_optim/{lomo,adalomo}.py", "0.1.1")
SOAP_PY = Source("pytorch-optimizer", "pytorch_optimizer/optimizer/soap.py", "4.1.0")
BNB = Source("bitsandbytes", "bitsandbytes/optim/optimizer.py, init_state and get_state_buffer", "0.43.3 to 0.49.0")
BNB_MIX = Source("bitsandbytes", "bitsandbytes/optim/ademamix.py", "0.44.1 to 0.49.0")
OF_PLAIN_TENSORS = Source(
    "bitsandbytes, operators that no sharding rule is registered for",
    "bitsandbytes/functional.py, optimizer_update_8bit_blockwise, optimizer_update_32bit",
    "0.43.3 to 0.50.2",
)
TORCHAO = Source("torchao", "torchao/optim/adam.py and subclass_{8bit,4bit,fp8}.py", "0.18.0")

# The 8-bit map has one fp32 entry per code, 256; the 4-bit one 16. Codes of 4 bits are packed two to a byte.
CODES4 = DType("uint4", 4, 0, TORCHAO)
BNB_BLOCKS = Blocks(UINT8, FP32, 256, 4096, Width.FP32, 256, True, False, BNB, older=("0.43.3", 2048))
AO_BLOCKS8 = Blocks(UINT8, FP32, 256, 4096, Width.PARAMETER, 256, False, True, TORCHAO)
AO_BLOCKS4 = Blocks(CODES4, FP32, 128, 4096, Width.PARAMETER, 16, False, True, TORCHAO)
AO_BLOCKS_FP8 = Blocks(FP8, FP32, 256, 4096, Width.PARAMETER, 0, False, True, TORCHAO)
BNB_PAGING = Paging(100_000, BNB)


def _states(width: Width, *kinds: Kind) -> tuple[State, ...]:
    return tuple(State(kind, width=width) for kind in kinds)


def _loop(source: Source, *temporaries: Temporary) -> Implementation:
    return Implementation("loop", StepTensor.NUMBER, temporaries, source)


def _foreach(source: Source, *temporaries: Temporary) -> Implementation:
    return Implementation("foreach", StepTensor.NUMBER, temporaries, source)


ADAM = (Kind.FIRST, Kind.SECOND)
MIX = (Kind.FIRST, Kind.SLOW, Kind.SECOND)
# one kernel per parameter, in place
KERNEL = Implementation("bitsandbytes", StepTensor.NUMBER, (), BNB)
KERNEL_MIX = Implementation("bitsandbytes", StepTensor.NUMBER, (), BNB_MIX)
COMPILED = Implementation(
    "torchao", StepTensor.HOST, (), TORCHAO, uncounted="temporaries of a step that is compiled, parameter by parameter"
)


def _bnb32(name: str, *kinds: Kind, paged: bool = False) -> Optimizer:
    step = KERNEL_MIX if Kind.SLOW in kinds else KERNEL
    return Optimizer(name, _states(Width.FP32, *kinds), (step,), step.source, paging=BNB_PAGING if paged else None)


def _bnb8(name: str, *kinds: Kind, paged: bool = False) -> Optimizer:
    step = KERNEL_MIX if Kind.SLOW in kinds else KERNEL
    paging = BNB_PAGING if paged else None
    return Optimizer(name, _states(Width.CODES, *kinds), (step,), step.source, BNB_BLOCKS, paging)


BNB_ROWS = (
    _bnb8("adamw-8bit", *ADAM),
    _bnb8("adam-8bit", *ADAM),
    _bnb8("lamb-8bit", *ADAM),
    _bnb8("lars-8bit", Kind.MOMENTUM),
    _bnb8("lion-8bit", Kind.MOMENTUM),
    _bnb8("sgd-momentum-8bit", Kind.MOMENTUM),
    _bnb8("rmsprop-8bit", Kind.SECOND),
    _bnb8("adagrad-8bit", Kind.ACCUMULATOR),
    _bnb8("ademamix-8bit", *MIX),
    _bnb8("paged-adamw-8bit", *ADAM, paged=True),
    _bnb8("paged-adam-8bit", *ADAM, paged=True),
    _bnb8("paged-lion-8bit", Kind.MOMENTUM, paged=True),
    _bnb8("paged-ademamix-8bit", *MIX, paged=True),
    _bnb32("lars", Kind.MOMENTUM),
    _bnb32("ademamix", *MIX),
    _bnb32("paged-adamw-32bit", *ADAM, paged=True),
    _bnb32("paged-adam-32bit", *ADAM, paged=True),
    _bnb32("paged-lion-32bit", Kind.MOMENTUM, paged=True),
    _bnb32("paged-ademamix-32bit", *MIX, paged=True),
)


def _torchao(name: str, blocks: Blocks) -> Optimizer:
    return Optimizer(name, _states(Width.CODES, *ADAM), (COMPILED,), TORCHAO, blocks)


TORCHAO_ROWS = (
    _torchao("adamw-torchao-8bit", AO_BLOCKS8),
    _torchao("adamw-4bit", AO_BLOCKS4),
    _torchao("adamw-fp8", AO_BLOCKS_FP8),
)


def _low_rank(width: Width) -> tuple[State, ...]:
    projector = State(Kind.PROJECTOR, Shape.PROJECTOR, Width.GRADIENT)
    return (*(State(kind, Shape.LOW_RANK, width) for kind in ADAM), projector)


GALORE = Implementation(
    "loop",
    StepTensor.NUMBER,
    (CURRENT_TWICE, PREVIOUS),  # the update projected back and scaled
    GALORE_PY,
    uncounted="workspace of the singular value decomposition",
)
APOLLO = _loop(APOLLO_PY, CURRENT_TWICE, PREVIOUS)
SOPHIA = Implementation("foreach", StepTensor.NUMBER, (ALL,), ZOO_PY, uncounted="what estimates the Hessian")
OPTIMI = Implementation(
    "foreach", StepTensor.NUMBER, (ALL_TWICE,), OPTIMI_PY, uncounted="what all parameters at once need beyond one"
)
LOMO = Implementation(
    "loop", StepTensor.NUMBER, (), LOMO_PY, uncounted="temporaries of the update in backward, gradient by gradient"
)
SOAP = Implementation("loop", StepTensor.NUMBER, (CURRENT_TWICE,), SOAP_PY, uncounted="workspace of the decomposition")
SOAP_LONGEST_SIDE = 10_000
SIDES = (Shape.SIDES, Width.GRADIENT, When.ALWAYS, SOAP_LONGEST_SIDE)
FREE_ADAM = (State(Kind.ITERATE), State(Kind.SECOND))
FREE_STEPS = (_foreach(FREE_PY, ALL), _loop(FREE_PY, CURRENT, PREVIOUS))
PACKAGE_ROWS = (
    Optimizer("lion", (State(Kind.MOMENTUM),), (_loop(LION_PY, CURRENT_TWICE),), LION_PY),
    Optimizer("lamb", MOMENTS, (_foreach(ZOO_PY, ALL), _loop(ZOO_PY, CURRENT)), ZOO_PY),
    Optimizer(
        "adan",
        (*MOMENTS, State(Kind.DIFFERENCE), State(Kind.PREVIOUS, width=Width.GRADIENT)),
        (_foreach(ZOO_PY, ALL), _loop(ZOO_PY, CURRENT, PREVIOUS)),
        ZOO_PY,
    ),
    Optimizer(
        "came",
        (
            State(Kind.FIRST),
            State(Kind.SECOND, Shape.FACTORED, Width.GRADIENT),
            State(Kind.CONFIDENCE, Shape.FACTORED_ONLY, Width.GRADIENT),
        ),
        (_foreach(ZOO_PY, ALL_TWICE), _loop(ZOO_PY, CURRENT_TWICE, PREVIOUS)),
        ZOO_PY,
    ),
    Optimizer(
        "prodigy",
        (*MOMENTS, State(Kind.DISTANCE), State(Kind.ORIGIN)),
        (_foreach(ZOO_PY, ALL, CURRENT), _loop(ZOO_PY, CURRENT, PREVIOUS)),
        ZOO_PY,
    ),
    Optimizer("sophia", _states(Width.GRADIENT, Kind.MOMENTUM, Kind.HESSIAN), (SOPHIA,), ZOO_PY),
    Optimizer("schedule-free-adamw", FREE_ADAM, FREE_STEPS, FREE_PY),
    Optimizer("schedule-free-radam", FREE_ADAM, FREE_STEPS, FREE_PY),
    Optimizer("schedule-free-sgd", (State(Kind.ITERATE),), (_foreach(FREE_PY), _loop(FREE_PY)), FREE_PY),
    Optimizer("stable-adamw", (*MOMENTS, State(Kind.COMPENSATION, when=When.SIXTEEN_BIT)), (OPTIMI,), OPTIMI_PY),
    Optimizer("lomo", (), (LOMO,), LOMO_PY),
    Optimizer("adalomo", (State(Kind.SECOND, Shape.FACTORED, Width.FP32),), (LOMO,), LOMO_PY, eager=True),
    Optimizer(
        "soap",
        (
            *_states(Width.GRADIENT, *ADAM),
            State(Kind.PRECONDITIONER, *SIDES),
            State(Kind.EIGENVECTORS, *SIDES),
        ),
        (SOAP,),
        SOAP_PY,
    ),
    Optimizer(
        "galore-adafactor",
        (
            State(Kind.SECOND, Shape.LOW_RANK_FACTORED, Width.GRADIENT_FP32),
            State(Kind.PROJECTOR, Shape.PROJECTOR, Width.GRADIENT_FP32),
        ),
        (GALORE,),
        GALORE_PY,
    ),
    Optimizer("galore-adamw", _low_rank(Width.GRADIENT), (GALORE,), GALORE_PY),
    Optimizer("galore-adamw-8bit", _low_rank(Width.CODES), (GALORE,), GALORE_PY, BNB_BLOCKS),
    Optimizer("apollo-adamw", _low_rank(Width.GRADIENT), (APOLLO,), APOLLO_PY),
    Optimizer("apollo-mini", _low_rank(Width.GRADIENT), (APOLLO,), APOLLO_PY),
)
OTHER_ROWS: tuple[Optimizer, ...] = (*BNB_ROWS, *TORCHAO_ROWS, *PACKAGE_ROWS)
