"""`correct_pipelines` of every family, and programs with one fault in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

import hypothesis.strategies as st

from tilesim.dsl.kernel import Kernel, public
from tilesim.errors import UsageError
from tilesim.ir.program import Program
from tilesim.kernels.blackwell import matmul_v4 as blackwell
from tilesim.kernels.cluster import split_k
from tilesim.kernels.hopper import matmul_v3, matmul_v4, matmul_v6
from tilesim.mistakes.table import Mutant, mutants
from tilesim.strategies.clusters import Multicast, Stealing
from tilesim.strategies.example import Example
from tilesim.strategies.rings import Ring

#: tiles of the tensor-core kernels: rows of an output tile, columns, depth of one k step
_M, _N, _DEPTH = 64, 64, 64


def _trips(stages: int) -> st.SearchStrategy[int]:
    """Trip counts around multiples of the number of stages, zero included."""
    return st.integers(0, 2 * stages + 1)


@st.composite
def _rings(draw: st.DrawFn) -> Ring:
    stages = draw(st.integers(1, 4))
    operands = draw(st.integers(1, 2))
    return Ring(
        stages=stages,
        trips=draw(_trips(stages)),
        tiles=draw(st.integers(1, 2)),
        filling=draw(st.sampled_from(("tensor", "bulk", "store"))),
        # a producer must see every phase of the stages it fills, or its parities alias (A23)
        producers=draw(st.integers(1, 2)) if stages % 2 == 0 else 1,
        operands=operands,
        split=operands > 1 and draw(st.booleans()),
        consumers=draw(st.integers(1, 3)),
        release=draw(st.sampled_from(("lane", "warp"))),
        chained=draw(st.booleans()),
        stored=draw(st.booleans()),
    )


@st.composite
def _multicasts(draw: st.DrawFn) -> Multicast:
    stages = draw(st.integers(1, 3))
    return Multicast(
        stages=stages,
        trips=draw(_trips(stages)),
        ctas=draw(st.sampled_from((2, 4))),
        consumers=draw(st.integers(1, 2)),
    )


def _stealing() -> st.SearchStrategy[Stealing]:
    return st.builds(Stealing, ctas=st.integers(1, 4), pair=st.booleans())


def _kernels(*kernels: Kernel, **parameters: st.SearchStrategy[int]) -> st.SearchStrategy[Example]:
    """Gallery kernels with drawn parameters."""
    return st.builds(_of_kernel, st.sampled_from(kernels), st.fixed_dictionaries(parameters))


def _of_kernel(kernel: Kernel, params: dict[str, Any]) -> Example:
    about = ", ".join(f"{name}={value}" for name, value in params.items())
    called, family = next(
        (name, family)
        for family, some in _KERNELS.items()
        for name, other in some.items()
        if other is kernel
    )
    made = f"pipeline({family!r}, kernel={called!r}, {about})"
    return Example(kernel.build(**params), f"{kernel.function.__module__}: {about}", made=made)


def _of_spec(spec: Ring | Multicast | Stealing) -> Example:
    family = next(name for name, kind in _SPECS.items() if isinstance(spec, kind))
    params = {f.name: getattr(spec, f.name) for f in fields(spec)}
    made = ", ".join([repr(family), *(f"{name}={value!r}" for name, value in params.items())])
    return Example(spec.build(), repr(spec), made=f"pipeline({made})")


def pipeline(
    family: str, *, kernel: str = "", fault: str = "", place: int = 0, **params: Any
) -> Example:
    """The pipeline that a strategy has drawn, as hypothesis prints it when a test fails.

    ``kernel`` is one of a family of several; ``fault`` injects that fault of the catalogue, at the
    ``place``-th place where it can be.

    Raises:
        UsageError: there is no such family, kernel, fault or place.
    """
    if family in _SPECS:
        example = _of_spec(_SPECS[family](**params))
    elif kernel in _KERNELS.get(family, ()):
        example = _of_kernel(_KERNELS[family][kernel], params)
    else:
        raise UsageError(f"there is no pipeline {family} {kernel}".rstrip())
    return _injected(example, fault, place) if fault else example


def _injected(example: Example, fault: str, place: int) -> Example:
    every = list(mutants(example.program, [fault]))
    if not 0 <= place < len(every):
        raise UsageError(f"{fault} has {len(every)} places in {example.made}, not {place}")
    made = f"{example.made[:-1]}, fault={fault!r}, place={place})"
    mutant = every[place]
    return Example(mutant.program, example.about, str(mutant), example.program, made)


def _multiples(low: int, high: int, unit: int) -> st.SearchStrategy[int]:
    return st.integers(low, high).map(lambda n: n * unit)


def _wgmma() -> st.SearchStrategy[Example]:
    return _kernels(
        matmul_v3.matmul, matmul_v4.matmul, m=st.just(2 * _M), n=st.just(_N),
        depth=_multiples(1, 5, _DEPTH), stages=st.integers(2, 4),
    )  # fmt: skip


def _persistent() -> st.SearchStrategy[Example]:
    return _kernels(
        matmul_v6.matmul, m=_multiples(1, 3, 2 * _M), n=st.just(_N),
        depth=_multiples(1, 3, _DEPTH), stages=st.integers(2, 3), ctas=st.integers(1, 2),
    )  # fmt: skip


def _tcgen05() -> st.SearchStrategy[Example]:
    return _kernels(
        blackwell.matmul, m=_multiples(1, 3, 2 * _M), n=st.just(_N),
        depth=_multiples(1, 3, _DEPTH), stages=st.integers(1, 3), ctas=st.integers(1, 2),
    )  # fmt: skip


def _split_k() -> st.SearchStrategy[Example]:
    return _kernels(
        split_k.split_k, splits=st.sampled_from((2, 4)), iterations=st.integers(1, 3),
        tiles=st.integers(1, 2),
    )  # fmt: skip


#: what families are made of, by their names
_SPECS: dict[str, type[Ring | Multicast | Stealing]] = {
    "ring": Ring, "multicast": Multicast, "stealing": Stealing,
}  # fmt: skip
_KERNELS = {
    "wgmma": {"matmul_v3": matmul_v3.matmul, "matmul_v4": matmul_v4.matmul},
    "persistent": {"matmul_v6": matmul_v6.matmul},
    "tcgen05": {"matmul_v4": blackwell.matmul},
    "split_k": {"split_k": split_k.split_k},
}
#: families of pipelines by name
FAMILIES: dict[str, Callable[[], st.SearchStrategy[Example]]] = {
    "ring": lambda: _rings().map(_of_spec),
    "multicast": lambda: _multicasts().map(_of_spec),
    "stealing": lambda: _stealing().map(_of_spec),
    "wgmma": _wgmma,
    "persistent": _persistent,
    "tcgen05": _tcgen05,
    "split_k": _split_k,
}


@public
def correct_pipelines(families: Iterable[str] | None = None) -> st.SearchStrategy[Example]:
    """Pipelines that are correct by construction (in practice strictness).

    ``families`` restricts them to some of `FAMILIES`: rings of stages (TMA, bulk copies or stores;
    one or several producers, operands and consumers; shared or split full barriers; chained roles;
    persistent tiles; bulk-store epilogues), multicast clusters, work stealing, wgmma, persistent
    wgmma, tcgen05 with accumulator stages, split-K. They shrink to one-stage rings.
    """
    names = tuple(FAMILIES) if families is None else tuple(families)
    return _as_made(st.one_of(*(FAMILIES[name]() for name in names)))


@st.composite
def _as_made(draw: st.DrawFn, examples: st.SearchStrategy[Example]) -> Example:
    """The examples as other values: hypothesis prints those that `map` makes as calls of what it
    was given, which is private here."""
    return replace(draw(examples))


@public
def mutations(
    program: Program, faults: Iterable[str] | None = None
) -> st.SearchStrategy[Mutant[Program]]:
    """``program`` with one fault of the catalogue (`tilesim.fuzz.FAULTS`) or of ``faults``.

    Raises:
        UsageError: there is no such fault.
    """
    every = list(mutants(program, faults))
    return st.sampled_from(every) if every else st.nothing()


@public
@st.composite
def mutated_pipelines(
    draw: st.DrawFn, families: Iterable[str] | None = None, faults: Iterable[str] | None = None
) -> Example:
    """A correct pipeline with one fault injected; ``fault`` says which and where.

    A fault may be harmless: a wait that another wait implies, a release not needed any more.
    """
    example = draw(correct_pipelines(families))
    every = list(mutants(example.program, None if faults is None else tuple(faults)))
    if not every:
        draw(st.nothing())
    number = draw(st.integers(0, len(every) - 1))
    mutant = every[number]
    place = sum(other.fault == mutant.fault for other in every[:number])
    return _injected(example, mutant.fault, place)
