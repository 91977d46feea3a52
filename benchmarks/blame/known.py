"""Wrong programs with a known culprit: the pairs of the bug collection, mutants of the gallery."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.blame.culprits import culprits
from tilesim.fuzz.judge import Base, base_of
from tilesim.ir.loc import Loc
from tilesim.ir.program import Program, Strict
from tilesim.kernels.registry import Case, cases
from tilesim.loader import Target
from tilesim.mistakes.table import FAULTS

#: what mutants are made of: small kernels of every family, at parameters that use stages often
GALLERY: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("hopper.copy::tensor", {}),
    ("hopper.matmul_v2::matmul", {"m": 64, "n": 64, "depth": 64 * 9, "stages": 2}),
    ("hopper.matmul_v4::matmul", {"m": 64, "n": 64, "depth": 64 * 9, "stages": 2}),
    ("hopper.matmul_v5::matmul", {"stages": 2, "iterations": 9, "ctas": 1}),
    ("nvfuser.multi_role::multi_role", {"rows": 20, "columns": 64}),
    ("cluster.multicast::multicast", {}),
    ("cluster.push::push", {}),
    ("bugs.transaction_bytes::guarded_expect", {"fixed": True, "tiles": 12}),
    ("bugs.role_agreement::idle_cta", {"fixed": True, "tiles": 12, "ctas": 1}),
    ("bugs.shared_barriers::too_few_stages", {"fixed": True}),
    ("blackwell.matmul_v2::matmul", {"m": 128, "n": 64, "depth": 64 * 9, "stages": 2}),
    ("blackwell.matmul_v3::matmul", {"m": 128, "n": 64, "depth": 64 * 9, "stages": 2}),
)
_PACKAGE = "tilesim.kernels."


@dataclass(frozen=True)
class Known:
    """A wrong program, and right ones that it should be.

    ``group`` is what it is counted under: an entry of the bug collection, or a fault.
    """

    name: str
    group: str
    strict: Strict
    make: Callable[[], Program]
    twins: tuple[Callable[[], Program], ...]
    inputs: Mapping[str, NDArray[Any]] | None = None
    #: the kernel that it was made of, whose reference says what it should compute
    target: Target | None = None
    #: the line of the instruction that a fault has removed, moved or changed
    spot: Loc | None = None

    @cached_property
    def culprits(self) -> frozenset[Loc]:
        """The lines in which it differs from one of the right ones.

        Raises:
            InvalidProgram: it cannot be built.
        """
        wrong = self.make()
        spot = () if self.spot is None else (self.spot,)
        return frozenset(spot).union(*(culprits(wrong, twin()) for twin in self.twins))


def collection() -> Iterator[Known]:
    """The pairs of the bug collection: what has to fail, and its nearest right twins."""
    every = [case for case in cases() if case.source]
    for case in every:
        if case.expected == "failed":
            twins = tuple(_twins(case, every))
            if twins:
                yield Known(
                    case.target.removeprefix(_PACKAGE), case.source, case.strict, case.build,
                    tuple(twin.build for twin in twins), _inputs(case),
                    Target(case.kernel.name, "", case.kernel, params=case.params),
                )  # fmt: skip


def _inputs(case: Case) -> Mapping[str, NDArray[Any]] | None:
    make = case.kernel.inputs
    if make is None:
        return None
    return make(np.random.default_rng(0), **{**case.kernel.params, **case.params})


def _twins(wrong: Case, every: list[Case]) -> list[Case]:
    """The clean cases of its kernel that differ in nothing but the switches of the mistake.

    A switch is named ``fixed``; in kernels with several mistakes, it is a parameter that says in
    words or with a truth value what is done.
    """
    defaults = wrong.kernel.params
    mine = {**defaults, **wrong.params}
    near: list[tuple[int, Case]] = []
    for case in every:
        if case.fails or case.kernel is not wrong.kernel:
            continue
        theirs = {**defaults, **case.params}
        apart = [name for name in mine if mine[name] != theirs[name]]
        if apart and all(_is_switch(name, defaults) for name in apart):
            near.append((len(apart), case))
    least = min((count for count, _ in near), default=0)
    return [case for count, case in near if count == least]


def _is_switch(name: str, defaults: Mapping[str, Any]) -> bool:
    if "fixed" in defaults:
        return name == "fixed"
    return name != "tiles" and isinstance(defaults[name], bool | str)


def mutants(sample: int, seed: int = 0) -> Iterator[Known]:
    """At most ``sample`` mutants of each fault, of the kernels of `GALLERY`."""
    bases = [base_of(_PACKAGE + target, tuple(params.items())) for target, params in GALLERY]
    for fault in FAULTS:
        places = [(b, i) for b in bases for i, m in enumerate(b.mutants) if m.fault == fault]
        chosen = Random(f"{seed}/{fault}").sample(places, min(sample, len(places)))
        yield from (_of_mutant(base, index) for base, index in chosen)


def _of_mutant(base: Base, index: int) -> Known:
    mutant = base.mutants[index]
    return Known(
        f"{base.kernel.name}: {mutant}", mutant.fault, "practice", lambda: mutant.program,
        (lambda: base.program,), base.steering, base.target, mutant.loc,
    )  # fmt: skip
