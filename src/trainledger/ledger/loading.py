"""How parameters come to be on the device: at once; or, where bitsandbytes quantises them there, one after the other;
or adapters after the base that PEFT finds there.

Sources: bitsandbytes/nn/modules.py (Params4bit._quantize, Int8Params._quantize), functional.py (quantize_4bit); peft/
utils/other.py (prepare_model_for_kbit_training), which raises what is left in 16 bits to fp32 parameter by parameter,
and from 0.20 on gives back what the allocator caches then. peft/tuners/tuners_utils.py (0.12.0 to 0.21.2): every
adapter is moved to its layer's device and dtype as it is made (_move_adapter_to_device_of_base_layer), and once all are
there, those in 16 bits or fewer are cast to fp32 one by one (cast_adapter_dtype).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.code_read import MODELS
from trainledger.facts.dtypes import FP16, FP32, DType
from trainledger.facts.peft import ADAPTERS
from trainledger.facts.quantization import BNB, BNB_4, SHARED_CODE, Product, empties_cache, made_in
from trainledger.ledger.book import Book, Made
from trainledger.ledger.leaves import keeps_own
from trainledger.ledger.updates import Runs, births
from trainledger.lines.line import Account
from trainledger.lines.stream import EMPTY
from trainledger.model.program import Packing, Role, Weight
from trainledger.model.quantised import blocks_of, sides, tensors_of

DOWN, MAGNITUDE = ".lora_A.", ".lora_magnitude_vector."  # in names of an adapter's weights
PRODUCT = "product of factors"  # the end of the name of what a product makes while a model is built
CODE = "code"  # the name of the table of codes among the tensors of a weight
Cast = tuple[tuple[int, ...], int]  # events of one parameter, and how many equal ones there are
Named = tuple[str, Weight, int]  # prefix of a weight's lines, the weight, and how many equal ones there are


@dataclass(frozen=True, slots=True)
class Loaded:
    """How parameters come to be: events before the model's buffers, and after them."""

    before: Runs
    after: Runs


def loaded(book: Book, weights: Iterable[Named], dtypes: dict[Weight, DType], peft: str) -> Loaded | None:
    """Every parameter in order, where they do not come to be at once; `dtypes`: those in which they are kept; `peft`:
    the release that raises parameters and makes adapters."""
    every = list(weights)
    packing = next((weight.packed for _, weight, _ in every if weight.packed), None)
    if packing is None or packing.kind.package != BNB_4.package:
        return None
    before: Runs = [(_shared(book), 1)] if packing.double else []
    casts, late = list[Cast](), list[Cast]()
    base = [one for one in every if not one[1].tuned]
    for (_, count), group in groupby(base, key=lambda one: (one[0], one[2])):
        events: list[int] = []
        for one in group:
            quantised = list(_quantised(book, one)) if one[1].packed else None
            if quantised is None:
                first, *rest = _raised(book, one, packing, dtypes[one[1]])
                events.append(first + 1)
                pairs: list[Cast] = [((to + 1, -old - 1), count) for old, to in pairwise((first, *rest))]
                casts, late = casts + pairs[:1], late + pairs[1:]
            elif sides(one[1])[-1] == 1:
                events += quantised
            else:  # experts are so many layers of their own
                before.append((tuple(quantised), count * sides(one[1])[-1]))
        before.append((tuple(events), count))
    after = _cast(casts)
    after += [((EMPTY,), 1)] if casts and empties_cache(peft) else []
    after += _tuned(book, every, dtypes, made_in(packing.kind, packing.compute, peft))
    return Loaded(before, [*after, *_cast(late)])


def adapted(book: Book, weights: Iterable[Named], dtypes: dict[Weight, DType], low: DType) -> Loaded:
    """The base, then adapters; `low`: the dtype of layers that are not quantised."""
    every = list(weights)
    base = [line for one in every if not one[1].tuned for line in _lines(book, one, dtypes)]
    kinds = [weight.packed.kind for _, weight, _ in every if weight.packed]
    return Loaded(births(base), _tuned(book, every, dtypes, kinds[0].parts[0].dtype if kinds else low))


def _tuned(book: Book, every: list[Named], dtypes: dict[Weight, DType], first: DType) -> Runs:
    """Adapters in the dtype `first`, of which those that are kept in fp32 are cast once all are made, or, where it is
    one of integers, as they are kept. Modules that are trained whole are copied after all adapters."""
    made, casts = list[Cast](), list[Cast]()
    inner: Dims = ()
    for one in sorted((one for one in every if one[1].tuned), key=lambda one: keeps_own(one[1])):
        prefix, weight, count = one
        raised = first.mantissa and first.bits < FP32.bits and dtypes[weight] == FP32
        lines = list(_lines(book, one, dtypes))
        if raised and not keeps_own(weight):
            how = Made(first, ADAPTERS, queued=True)  # layer by layer, as they are cast
            raw = book.made(Account.WEIGHTS, f"{prefix}{weight.name}, as made", weight.dims, how)
            casts += [((kept + 1, -raw - 1), count) for kept, _ in lines]
            lines = [(raw, count)]
        before, after = _norms(book, one, inner, first if raised else dtypes[weight])
        made += [((*before, line + 1, *after), copies) for line, copies in lines]
        inner = weight.dims[1:] if DOWN in weight.name else inner
    return [*_cast(made), *_cast(casts)]


def _norms(book: Book, one: Named, inner: Dims, dtype: DType) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Around the birth of DoRA's magnitudes, which are norms of the adapted weight: births of the product of both
    factors, of that scaled and of its sum with the layer's weight; nothing around other parameters.
    Source: peft/tuners/lora/dora.py, update_layer, get_weight_norm (0.21.2)."""
    prefix, weight, _ = one
    if MAGNITUDE not in weight.name:
        return (), ()
    product, scaled, whole = (
        book.tensor(Account.WEIGHTS, f"{prefix}{weight.name}: {name}", (*weight.dims, *inner), dtype, ADAPTERS) + 1
        for name in (PRODUCT, "scaled product", "adapted weight")
    )
    return (product, scaled, whole, -scaled), (-product, -whole)


def _cast(casts: list[Cast]) -> Runs:
    """What is made or cast, layer by layer."""
    return [(tuple(e for pair, _ in group for e in pair), n) for n, group in groupby(casts, key=lambda one: one[1])]


def _lines(book: Book, one: Named, dtypes: dict[Weight, DType]) -> Iterator[tuple[int, int]]:
    """A parameter's lines with their copies."""
    prefix, weight, count = one
    for part in tensors_of(weight, dtypes[weight]):
        source = part.source or MODELS
        yield book.tensor(Account.WEIGHTS, prefix + part.name, part.dims, part.dtype, source), count * part.copies


def _raised(book: Book, one: Named, packing: Packing, dtype: DType) -> tuple[int, ...]:
    """The lines of a parameter in turn: as it is loaded, as it is raised, as it is kept; biases that their layer casts
    as it first runs are cast when all else is built."""
    prefix, weight, _ = one

    def line(state: str, dtype: DType) -> int:
        how = Made(dtype, MODELS, queued=True)
        return book.made(Account.WEIGHTS, f"{prefix}{weight.name}, {state}", weight.dims, how)

    kept = book.tensor(Account.WEIGHTS, prefix + weight.name, weight.dims, dtype, MODELS)
    cast = weight.role is Role.BIAS and weight.dtype is not None and weight.dtype == packing.biases
    if packing.loaded == FP32 or not (cast or dtype == FP32):
        return (kept,)
    return line("as loaded", packing.loaded), *([line("raised", FP32)] if cast else []), kept


def _quantised(book: Book, one: Named) -> Iterator[int]:
    """Births and deaths while one matrix is quantised: it is on the device whole until its tensors are made."""
    prefix, weight, _ = one
    packing = weight.packed
    assert packing is not None
    outer, inner, _ = sides(weight)
    eight = packing.kind.product is Product.INT8

    def line(name: str, size: int, dtype: DType) -> int:
        dims = (Axis(Dim.ELEMENTS, size),)
        return book.tensor(Account.WEIGHTS, f"{prefix}{weight.name}: {name}", dims, dtype, packing.kind.source) + 1

    raw = line("as loaded", outer * inner, FP16 if eight else packing.loaded)
    parts = [number + 1 for number, _ in _lines(book, one, {weight: FP32})]
    yield raw
    if eight:
        yield from parts
    else:
        scales, codes = blocks_of(packing, outer * inner), packing.kind.tensors(packing.double, packing.release)
        table = next(one.size for one in codes if one.name == CODE)
        sizes = line("sizes of codes", table, FP32), line("largest of codes", 1, FP32)
        made = _four_bit(parts, line("absmax before codes", scales, FP32), line("centred", scales, FP32), packing)
        for event in made:  # the table of codes is divided by its largest
            yield event
            yield from (*sizes, -sizes[0], -sizes[1]) if event == parts[[one.name for one in codes].index(CODE)] else ()
    yield -raw


def _four_bit(parts: list[int], scales: int, centred: int, packing: Packing) -> Iterator[int]:
    """Scales, codes, their table; then, where scales are quantised too, their mean, the difference, and its codes."""
    if not packing.double:
        packed, absmax, code = parts
        yield from (absmax, packed, code)
        return
    packed, code, offset, *rest = parts
    yield from (scales, packed, code, offset, centred, *rest, -centred, -scales)


def _shared(book: Book) -> tuple[int, ...]:
    """The table of the scales' codes that the process holds once."""
    dims = (Axis(Dim.ELEMENTS, SHARED_CODE.entries),)
    return (book.tensor(Account.BUFFERS, "code of scales, of the process", dims, FP32, BNB) + 1,)
