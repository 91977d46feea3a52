"""The gallery's correct kernels, with the parameters at which the mutation score checks them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random

from tilesim.errors import UsageError
from tilesim.fuzz.cases import Case, Params, Settings, Value
from tilesim.fuzz.judge import base_of
from tilesim.kernels import registry
from tilesim.mistakes.table import FAULTS

_PACKAGE = "tilesim.kernels."
_CORRECT = ("proved", "exhausted")

#: the most clusters of which one takes over all the others: a third of the grid is resident
_STOLEN = 5

_Long = tuple[Mapping[str, Value], ...]

#: Parameters at which every stage is used often. A wrong count adds one arrival more or less per
#: use, so that it shows only after as many uses as the phase has arrivals (or warps).
LONG: Mapping[str, _Long] = {
    "hopper.matmul_v2::matmul": ({"m": 64, "n": 64, "depth": 64 * 17, "stages": 2},),
    "hopper.matmul_v3::matmul": ({"m": 64, "n": 64, "depth": 64 * 17, "stages": 2},),
    "hopper.matmul_v4::matmul": ({"m": 64, "n": 64, "depth": 64 * 17, "stages": 2},),
    "hopper.matmul_v5::matmul": ({"stages": 2, "iterations": 19, "ctas": 1},),
    "hopper.matmul_v6::matmul": ({"stages": 2, "ctas": 1, "m": 512, "n": 64, "depth": 64 * 5},),
    "hopper.matmul_v7::matmul": (
        {"m": 512, "n": 128, "ctas": 1, "band": 1, "depth": 64 * 5, "stages": 2},
    ),
    "hopper.matmul_v8::matmul": ({"depth": 64 * 5},),
    "hopper.attention_v1::attention": (
        {"queries": 128 * 6, "keys": 64 * 4, "heads": 1, "block": 64, "ctas": 1},
        {"queries": 192 * 6, "keys": 64 * 5, "heads": 1, "block": 64, "consumers": 3, "ctas": 1},
    ),
    "nvfuser.multi_role::multi_role": ({"rows": 20, "columns": 64},),
    "nvfuser.synchronous_producer::scale": ({"rows": 128 * 12, "columns": 8},),
    "nvfuser.synchronous_producer::dequantise": ({"n": 64, "depth": 64 * 12, "stages": 2},),
    "cluster.split_k::split_k": ({"splits": 2, "iterations": 9, "tiles": 4},),
    "cluster.matmul::matmul": (
        {"stages": 2, "iterations": 17}, {"rows": 1, "stages": 2, "iterations": 17},
    ),
    "bugs.transaction_bytes::guarded_expect": ({"fixed": True, "tiles": 12},),
    "bugs.arrival_count::contiguous_load": ({"fixed": True, "trips": 12},),
    "bugs.role_agreement::idle_cta": ({"fixed": True, "tiles": 12, "ctas": 1},),
    "blackwell.matmul_v2::matmul": ({"m": 128, "n": 64, "depth": 64 * 17, "stages": 2},),
    "blackwell.matmul_v3::matmul": ({"m": 128, "n": 64, "depth": 64 * 17, "stages": 2},),
    "blackwell.matmul_v4::matmul": (
        {"stages": 2, "ctas": 1, "m": 128 * 10, "n": 64, "depth": 64},
    ),
    "blackwell.matmul_v5::matmul": (
        {"m": 128 * _STOLEN, "n": 64, "depth": 64, "stages": 2},
    ),
    "blackwell.matmul_v6::matmul": (
        {"m": 256 * _STOLEN, "n": 64, "depth": 64, "stages": 2},
    ),
    "blackwell.attention::attention": (
        {"queries": 256, "keys": 64 * 6, "heads": 1, "block": 64, "stages": 2},
        {"queries": 256, "keys": 128 * 4, "heads": 1},
    ),
}  # fmt: skip


def rows(name: str = "") -> tuple[tuple[str, Params], ...]:
    """Target and parameters of the correct kernels whose name contains ``name``.

    The long ones and those with the longest run first; others if they add a place.

    Raises:
        UsageError: there is none.
    """
    kernels: dict[str, list[Params]] = {}
    for case in registry.cases():
        target = _target(case)
        if case.expected in _CORRECT and case.strict == "practice" and name in target:
            kernels.setdefault(target, []).append(tuple(case.params.items()))
    if not kernels:
        raise UsageError(f"the gallery has no correct kernel whose name contains {name!r}")
    return tuple((t, p) for t, given in kernels.items() for p in _needed(t, given))


def _target(case: registry.Case) -> str:
    function = case.kernel.function
    return f"{function.__module__}::{function.__name__}"


def _needed(target: str, given: list[Params]) -> Iterator[Params]:
    """The parameters that add a place, in the order of `rows`."""
    long = [tuple(params.items()) for params in LONG.get(target.removeprefix(_PACKAGE), ())]
    given = sorted(dict.fromkeys(given), key=lambda params: -base_of(target, params).length)
    known: set[str] = set()
    for params in dict.fromkeys((*long, *given)):
        places = {str(mutant) for mutant in base_of(target, params).mutants}
        if params in long or not places <= known:
            known |= places
            yield params


def cases(
    selected: Iterable[tuple[str, Params]],
    faults: Sequence[str] = (),
    *,
    settings: Settings | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Iterator[Case]:
    """One case per mutant; ``sample`` keeps at most so many of each fault, chosen by ``seed``.

    Raises:
        UsageError: there is no such fault.
    """
    for fault in faults:
        if fault not in FAULTS:
            raise UsageError(f"there is no fault {fault!r}; there are {', '.join(FAULTS)}")
    places = [
        (mutant.fault, target, params, index)
        for target, params in selected
        for index, mutant in enumerate(base_of(target, params).mutants)
        if not faults or mutant.fault in faults
    ]
    if sample is not None:
        places = _sampled(places, sample, seed)
    for number, (_, target, params, index) in enumerate(places):
        yield Case(number, target, params, settings or Settings(), 0, index)


def _sampled(
    places: list[tuple[str, str, Params, int]], size: int, seed: int
) -> list[tuple[str, str, Params, int]]:
    """At most ``size`` mutants of each fault, in their order."""
    kept: set[int] = set()
    for fault in FAULTS:
        mine = [i for i, place in enumerate(places) if place[0] == fault]
        kept |= set(Random(f"{seed}/{fault}").sample(mine, min(size, len(mine))))
    return [places[i] for i in sorted(kept)]
