"""Random programs with a parameter: what is said of all values, compared with checks of each.

    python -m tests.sim.forall_campaign --cases 2000 [--seed 1] [--seconds 100] [--jobs 2]
        [--values 64] [--instructions 120000]
        [--kind rings|pipelines|clusters|places|guarded|emitted]

Even numbers are rings (`tests.sim.forall_programs`), odd ones `tests.sim.forall_pipelines`, but
those of the form 8 k + 5 are pipelines of clusters (`tests.sim.forall_clusters`), and those of the
form 8 k + 3 registers in several roles (`tests.sim.forall_places`); with a kind, all are of it. The
last two have a second parameter, which has a value drawn. Two kinds are PTX, and made only if asked
for: ``guarded``, whose registers are set under predicates (`tests.sim.guarded_programs`), and
``emitted``, rings that a compiler has made PTX of. Of a program that is proved for all
values, those from 1 to 64 are checked one by one, and some larger ones: beside the constants that
decide something in it, and at random. Of one that fails, the value that is said to fail.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import click

from tests.campaign import Judge, Judged, command
from tests.sim.emitted_programs import EmittedProgram
from tests.sim.forall_clusters import clusters
from tests.sim.forall_pipelines import pipeline
from tests.sim.forall_places import places
from tests.sim.forall_programs import RandomProgram, rings
from tests.sim.guarded_programs import GuardedProgram
from tilesim.checker import prove_alone
from tilesim.checker.for_all import ForAll
from tilesim.checker.report import Claim, Values
from tilesim.errors import TilesimError
from tilesim.ir.program import Program
from tilesim.limits import Timer

#: the programs of a number
Build: TypeAlias = "RandomProgram | GuardedProgram | EmittedProgram"
#: values that are checked one by one, unless others are asked for
VALUES = 64
#: larger ones of each kind
_LARGE = 2
#: warp instructions of all runs of a proof: one that takes more says nothing
INSTRUCTIONS = 120_000
#: no value beyond this one is checked
_LAST = 3_000
#: what makes programs with one parameter, and with two, by kind
_ONE: Mapping[str, Callable[..., Program]] = {"rings": rings, "pipelines": pipeline}
_TWO: Mapping[str, Callable[..., Program]] = {"clusters": clusters, "places": places}
#: programs in PTX, by kind
_PTX: Mapping[str, Callable[[int], Build]] = {"guarded": GuardedProgram, "emitted": EmittedProgram}
#: the kinds of eight programs
_MIXED = (
    "rings", "pipelines", "rings", "places", "rings", "clusters", "rings", "pipelines",
)  # fmt: skip
#: values of the parameter that is not left open
_FIXED = (1, 2, 3, 5, 8)


class _Values:
    """Checks of single values of the parameter ``name``; the other one is ``fixed``, if any."""

    def __init__(
        self, build: Build, name: str, fixed: Mapping[str, int], known: dict[int, str]
    ) -> None:
        self._build = build
        self._name = name
        self._fixed = fixed
        self._known = known
        self.checked = 0

    def verdict(self, value: int) -> str:
        """What a check of a value says; of those that `ForAll` has checked alone, what it said."""
        self.checked += 1
        if value not in self._known:
            self._known[value] = self._check(value)
        return self._known[value]

    def _check(self, value: int) -> str:
        try:
            program = self._build(**{**self._fixed, self._name: value})
            return prove_alone("practice", program, Timer(None), lambda _: None).verdict
        except (TilesimError, ValueError, AssertionError):
            return "refused"

    def not_proved(self, values: list[int]) -> int | None:
        """The first of some values that is not proved."""
        return next((v for v in values if self.verdict(v) not in ("proved", "refused")), None)


def judged(
    number: int, kind: str | None = None, most: int = VALUES, instructions: int = INSTRUCTIONS
) -> Judged:
    """Compares what is said of all values of a random program with checks of each up to ``most``;
    without a kind, the program's number decides."""
    kind = kind or _MIXED[number % len(_MIXED)]
    name, fixed = "n", dict[str, int]()
    if kind in _PTX:
        program: Build = _PTX[kind](number)
    elif kind in _ONE:
        program = RandomProgram(number, _ONE[kind])
    else:
        swapped = kind == "clusters" and number // 8 % 4 == 0
        name, other = ("m", "n") if swapped else ("n", "m")
        fixed = {other: _FIXED[number // 32 % len(_FIXED)]}
        program = RandomProgram(number, _TWO[kind])
    said, wrong, checked = _compared(program, name, fixed, most, instructions)
    return Judged(f"{kind}: {said}", wrong, "", {"values checked one by one": checked})


def _compared(
    build: Build, name: str, fixed: Mapping[str, int], most: int, instructions: int
) -> tuple[str, str, int]:
    """What is said of all values of a parameter, what is wrong about that, and how many values were
    checked."""
    prove = partial(prove_alone, "practice")
    proof = ForAll(build, fixed, name, Values(), prove, "practice", Timer(None), instructions)
    claim = proof.claim()
    values = _Values(build, name, fixed, dict(proof.alone))
    said, wrong = _judged(build, claim, values, most, failing=proof.failing is not None)
    return said, wrong, values.checked


def _judged(
    build: Build, claim: Claim, values: _Values, most: int, *, failing: bool
) -> tuple[str, str]:  # fmt: skip
    draw = random.Random(build.number)
    if claim.proved:
        last = min(_LAST, claim.limit[0] if claim.limit else _LAST)
        beside = sorted({m + d for m in build.marks for d in (-1, 0, 1, 2) if m + d > most})
        late = draw.sample(beside, min(_LARGE, len(beside)))
        late += [draw.randrange(most, 400), draw.randrange(400, _LAST)]
        if isinstance(build, GuardedProgram) and build.first is not None and build.first <= last:
            return "proved", f"not so for {build.first}, where an interpreter finds a fault"
        bad = values.not_proved([*range(1, most + 1), *(v for v in late if v <= last)])
        return "proved", f"not so for {bad}" if bad else ""
    if failing and claim.at is not None:
        right = values.verdict(claim.at) != "failed"
        return "failed", f"{claim.at} is right" if right else ""
    return f"not shown: {_kind(str(claim.obstacle))}", ""


def _kind(text: str) -> str:
    return " ".join("N" if any(c.isdigit() for c in word) else word for word in text.split())[:60]


@command
@click.option(
    "--kind", type=click.Choice([*_ONE, *_TWO, *_PTX]), help="All programs are of this one."
)
@click.option("--values", default=VALUES, show_default=True, help="Values checked one by one.")
@click.option(
    "--instructions", default=INSTRUCTIONS, show_default=True, help="Of all runs of one proof."
)
def main(kind: str | None, values: int, instructions: int) -> Judge:
    """Compare what is said of all values with checks of each."""
    return partial(judged, kind=kind, most=values, instructions=instructions)


if __name__ == "__main__":
    main()
