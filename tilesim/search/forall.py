"""Proves a kernel for every value of a parameter, from runs for some of them.

Each run is followed (`tilesim.sim.forall`) and found to stand for all values that are some number
of steps larger, up to a limit. Values that no run stands for are run, from the least on, until none
is left: those before a pipeline is in a steady state one by one, then one per residue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any, Protocol

from tilesim.errors import TilesimError
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.search.answers import are_the_same
from tilesim.search.residues import RIGHT, Cover, Residue, Run
from tilesim.search.values import Claim, Values
from tilesim.sim.forall.forms import forms
from tilesim.sim.forall.free import (
    LONGEST,
    UNBOUNDED,
    Free,
    Obstacle,
    Refused,
    Scope,
    raised_at,
)
from tilesim.sim.forall.python import numbers_in, types_of_integers
from tilesim.sim.forall.trace import Limit, Traced
from tilesim.sim.grid.plan import asks_for_clusters
from tilesim.sim.machine.machine import Machine
from tilesim.sim.simulate import Simulation
from tilesim.timer import Timer

if TYPE_CHECKING:
    from tilesim.verdict import Report

#: a step that most numbers divide, to find out how many steps a repetition is
_MANY = lcm(*range(1, 17))
#: how far the first run is from the first value
_FIRST_RUNS = (24, 48, 96, 192, 384)
#: runs that stand for nothing but themselves
_ALONE = 100
#: so many values are run one by one where that is the only way
_FEW = 64
#: warp instructions that all runs together may execute: minutes
MOST = 5_000_000
#: values that are decided by whole checks, at most
_CHECKED = 8
#: values for which a kernel in Python is built to see whether it makes of them what it is said to
_BUILT = 48
#: how a kernel says that it cannot be made with some parameters
_REFUSALS = (TilesimError, ValueError, AssertionError)


class Prove(Protocol):
    """What a check says of a program without other schedules; see `tilesim.checker.prove_alone`."""

    def __call__(
        self, program: Program | Mir, timer: Timer, prepare: Callable[[Simulation], None] | None
    ) -> Report:
        """The report; ``prepare`` sees what is going to be run, and causes are not looked for."""
        ...


class _Fails(Exception):
    """A program is not proved."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run


class ForAll:
    """Proves the programs of ``build`` for every value of the parameter ``name``."""

    def __init__(
        self, build: Callable[..., Program | Mir], params: Mapping[str, Any], name: str,
        values: Values, prove: Prove, strict: Strict, timer: Timer, most: int = MOST,
        check: Callable[[Program | Mir], Report] | None = None,
    ) -> None:  # fmt: skip
        """``most``: warp instructions that all runs together may execute. ``check``: a whole check,
        with other schedules, of the program of a value that one run does not decide."""
        self._build = build
        self._params = dict(params)
        self._name = name
        self._values = values
        self._prove = prove
        self._check = check
        #: values that were decided by whole checks
        self._checked = 0
        self._strict: Strict = strict
        self._timer = timer
        self._runs = 0
        self._left = self._most = most
        self._cover = Cover([Residue(0)])
        #: values before this number are not followed: they stand for no others
        self._begin = 0
        #: whether copies take one cycle in runs that are followed
        self._quick = True
        #: whether lines of Python ask for the value; numbers in them and given to them, and those
        #: beside
        self._is_python = bool(getattr(build, "written_in_python", True))
        named = numbers_in(build, self._params) if self._is_python else ()
        self._beside = [*dict.fromkeys(n + by for by in (0, 1, -1) for n in named)]
        self._built = 0
        #: what checks of single values said, by value; of those that were not followed
        self.alone: dict[int, str] = {}
        #: the report for the value of which a check says something else
        self.failing: Report | None = None

    def claim(self) -> Claim:
        """What can be said of all values."""
        count = self._values.count
        try:
            try:
                return self._claim()
            except Refused:
                if count is None or count > _FEW:
                    raise
                return self._each(count)
        except Refused as why:
            return self._without(why.obstacle)
        except _Fails as found:
            return self._failed(found.run)

    def _each(self, count: int) -> Claim:
        """The same of so many values, which are run one by one."""
        self._cover = Cover([Residue(0)])
        for number in range(count):
            self._cover.add(self._settled(self._alone(number)))
        self._require_any()
        refused = tuple(map(self._values.at, self._cover.refused))
        parts = (("proved", self._wanted),)
        return Claim(self._wanted, True, runs=self._runs, refused=refused, parts=parts)

    def _require_any(self) -> None:
        if not any(residue.taken for residue in self._cover.residues):
            raise Refused(Obstacle("the kernel refuses each of these values", UNKNOWN))

    @property
    def _wanted(self) -> str:
        return self._values.says(self._name)

    def _without(self, why: Obstacle) -> Claim:
        number = self._cover.next() or 0
        upto = self._values.at(number - 1) if number else None
        parts = *self._up_to(number), ("not shown", self._wanted)
        return Claim(self._wanted, False, why, runs=self._runs, upto=upto, parts=parts)

    def _failed(self, run: Run) -> Claim:
        """What comes of a value that no run has shown to be right: it is checked by itself."""
        at, here = self._values.at(run.number), f"{self._name} = {self._values.at(run.number)}"
        found = self._alone_checked(run)
        why = None
        if found.verdict == "failed":
            self.failing = found
            here = f"{here}: {', '.join(dict.fromkeys(f.rule for f in found.findings))}"
        elif found.verdict in RIGHT:
            why = Obstacle(f"{here} is {found.verdict} by a check of all its schedules", UNKNOWN)
        else:
            said = found.reasons[0] if found.reasons else found.verdict
            why = Obstacle(f"{here}: {said}", UNKNOWN)
        parts = *self._up_to(run.number), (found.verdict, here)
        return Claim(self._wanted, False, why, at=at, runs=self._runs, parts=parts)

    def _alone_checked(self, run: Run) -> Report:
        """The report of a value by itself, with other schedules if one run does not decide."""
        assert run.report is not None
        if run.settled:
            return run.report
        program = self._build(**{**self._params, self._name: self._values.at(run.number)})
        failed = run.report.verdict == "failed"
        found = self._prove(program, self._timer, None) if failed else run.report
        if found.verdict in ("failed", "proved") or self._check is None:
            return found
        self._checked += 1
        return self._check(program)

    def _settled(self, run: Run) -> Run:
        """A run for a value that is right; if only a whole check of it says so, it stands for no
        other.

        Raises:
            _Fails: it is not right, or that is not known.
        """
        if run.report is None or run.proved:
            return run
        if self._check is None or self._checked >= _CHECKED or run.report.verdict == "failed":
            raise _Fails(run)
        found = self._alone_checked(run)
        if found.verdict not in RIGHT:
            raise _Fails(replace(run, report=found, settled=True))
        here = Limit(0, Obstacle("it was checked by itself", UNKNOWN))
        return Run(run.number, 0, here, found, 1, None)

    def _up_to(self, number: int) -> tuple[tuple[str, str], ...]:
        """What is said of the values before a number."""
        if not number:
            return ()
        return (("proved", self._values.upto(self._name, self._values.at(number - 1))),)

    def _claim(self) -> Claim:
        step, end = self._step(), self._values.count
        cover = self._cover = Cover([Residue(number) for number in range(step)])
        most, wait = _ALONE + 3 * self._begin + step, step
        why: Obstacle | None = None
        while (number := cover.next()) is not None and (end is None or number < end):
            run = self._run(number, step) if number >= self._begin else self._alone(number)
            if step % run.modulus:
                longer = self._refined(step, run.modulus)
                if longer == step:
                    what = f"what {self._name} is modulo {run.modulus}: too many to look at"
                    raise Refused(Obstacle(what, UNKNOWN))
                step = longer
                continue
            run = self._settled(run)
            cover.add(run)
            if run.traced is not None and not run.steps:
                # too few turns, most likely; a run that is not followed costs a fraction
                self._begin, wait = number + wait, 2 * wait
                why = cover.residues[number % step].why or why
                step = self._refined(step, *(ratio.numerator for ratio in run.traced.ratios))
            if cover.alone > most:
                raise Refused(why or Obstacle("no state that repeats", UNKNOWN))
        self._require_any()
        limit, last = cover.limit(), None
        if limit is not None and (end is None or limit[0] < end):
            last = self._values.at(limit[0]), limit[1]
        few = [n for n in cover.refused if limit is None or n <= limit[0]][:8]
        refused = tuple(self._values.at(number) for number in few)
        shown = self._wanted if last is None else self._values.upto(self._name, last[0])
        return Claim(
            self._wanted, True, limit=last, runs=self._runs, refused=refused,
            parts=(("proved", shown),), period=step,
        )  # fmt: skip

    def _refined(self, step: int, *divisors: int) -> int:
        """How many values apart those are that a run stands for: of ``step`` the least multiple
        that some other numbers divide, but for one that is too large."""
        longer = lcm(step, *divisors)
        if longer == step or longer > LONGEST:
            return step
        self._cover.refine(longer)
        return longer

    def _step(self) -> int:
        """How many values apart those are that one run stands for."""
        why: Obstacle | None = None
        for self._quick in (True, False):
            step, said = self._step_found()
            if step:
                return step
            why = why or said
        assert why is not None
        raise Refused(why)

    def _step_found(self) -> tuple[int, Obstacle]:
        """The same, or 0 and why it is not known."""
        why: Obstacle | None = None
        unsaid = Obstacle("no state that repeats", UNKNOWN)
        ratios: set[Fraction] = set()
        modulus, step = 1, 0
        for number in self._first_runs():
            run = self._run(self._like_default(number, modulus), _MANY)
            modulus = lcm(modulus, run.modulus)
            if run.report is None:
                run = self._run(self._like_default(number, modulus), _MANY)
            if run.report is None:
                continue
            if not run.proved:
                raise _Fails(self._first_failing(run))
            assert run.traced is not None
            if run.traced.hopeless is not None:
                raise Refused(run.traced.hopeless)
            if run.traced.ratios:
                ratios |= run.traced.ratios
                step = lcm(modulus, *(ratio.numerator for ratio in ratios))
                self._begin = max(0, run.number - (run.traced.spare or 0) - step)
                if step > LONGEST:
                    what = f"a repetition of {step} {self._name}, too many to look at"
                    raise Refused(Obstacle(what, UNKNOWN))
                if self._stands_for_more(run, step):
                    return step, unsaid
            if run.traced.why is not None and run.traced.why == why:
                break  # more turns do not help
            why = run.traced.why or why
            unsaid = Obstacle("no state that repeats", run.traced.used)
        return step, why or unsaid

    def _stands_for_more(self, run: Run, step: int) -> bool:
        """Whether all loops of a run that depend on the parameter have repetitions of ``step``."""
        return bool(run.steps or run.limit is None or run.limit.fits) or bool(
            self._run(run.number, step).steps
        )

    def _like_default(self, number: int, modulus: int) -> int:
        """The least number from this one on of which the value is like the default."""
        default = self._params.get(self._name)
        if not isinstance(default, int):
            return number
        alike = (n for n in range(number, number + modulus))
        return next((n for n in alike if not (self._values.at(n) - default) % modulus), number)

    def _first_runs(self) -> Iterator[int]:
        """Numbers of values to begin with."""
        end = self._values.count
        for number in _FIRST_RUNS:
            if end is not None and number >= end:
                return
            yield number

    def _first_failing(self, run: Run) -> Run:
        """The run for the least value that is not proved, up to one that is not."""
        for number in range(run.number):
            earlier = self._alone(number)
            if earlier.report is not None and not earlier.proved:
                return earlier
        return run

    def _alone(self, number: int) -> Run:
        """The run for the value of a number, which is not followed."""
        self._count()
        value = self._values.at(number)
        machines: list[Machine] = []

        def watch(simulation: Simulation) -> None:
            simulation.watches = machines.append

        try:
            program = self._build(**{**self._params, self._name: value})
            report = self._prove(program, self._timer, watch)
        except _REFUSALS as why:
            self.alone[value] = "refused"
            said = Limit(0, Obstacle(str(why).splitlines()[0], UNKNOWN))
            return Run(number, 0, said, None, 1, None)
        self._left -= sum(machine.executed for machine in machines)
        self.alone[value] = report.verdict
        here = Limit(0, Obstacle("it was not followed", UNKNOWN))
        return Run(number, 0, here, report, 1, None)

    def _count(self) -> None:
        if self._timer.reason():
            raise Refused(Obstacle(self._timer.reason(), UNKNOWN))
        if self._left < 0:
            what = f"runs of {self._runs} values have executed {self._most:,} warp instructions"
            raise Refused(Obstacle(what, UNKNOWN))
        self._runs += 1

    def _run(self, number: int, step: int) -> Run:
        """The run for the value of a number, followed for ``step`` of them."""
        self._count()
        scope = Scope(self._name, building=self._is_python)
        try:
            free, program, answered = self._forms(self._values.at(number), scope)
        except _REFUSALS as why:
            self._refuses_as_well(number, why)
            steps = UNBOUNDED if scope.last == UNBOUNDED else scope.last // step
            said = Limit(steps, Obstacle(str(why).splitlines()[0], UNKNOWN))
            return Run(number, steps, said, None, scope.modulus, None)
        watching: list[Traced] = []

        def prepare(simulation: Simulation) -> None:
            found = forms(free.code.mir, simulation.code.mir, self._name)
            traced = Traced(simulation, found, step, quick=self._quick, answered=answered)
            watching.append(traced)

        report = self._prove(program, self._timer, prepare)
        (traced,) = watching
        traced.close()
        self._left -= traced.executed
        limit = traced.least()
        if scope.bound is not None and (limit is None or scope.last // step < limit.steps):
            limit = Limit(scope.last // step, scope.bound, fits=True)
        steps = UNBOUNDED if limit is None else limit.steps
        if steps and report.verdict == "proved" and not step % scope.modulus:
            self._require_as_told(free, number, min(steps * step, scope.last), step)
        return Run(number, steps, limit, report, scope.modulus, traced)

    def _require_as_told(self, free: Simulation, number: int, last: int, step: int) -> None:
        """What the kernel makes of values up to ``last`` further, in steps, is what it has made of
        a number that is not known: of some, beside the numbers that its code names, and others.

        Raises:
            Refused: it asks of such a number what the number does not see.
        """
        values = self._values
        named = ((n - values.first, n) for n in self._beside)
        numbers = [n // values.step for n, _ in named if not n % values.step]
        for other in dict.fromkeys((*numbers, number + step, number + 97 * step)):
            further = other - number
            if not 0 < further <= last or further % step or self._built >= _BUILT:
                continue
            if values.count is not None and other >= values.count:
                continue
            self._built += 1
            try:
                program = self._build(**{**self._params, self._name: values.at(other)})
                plain = Simulation(program, numbers=False, strict=self._strict)
                forms(free.code.mir, plain.code.mir, self._name, further)
            except (*_REFUSALS, Refused) as why:
                what = (
                    f"what the kernel makes of {self._name} = {values.at(other)} is not what it "
                    f"makes of a number that is not known: {str(why).splitlines()[0]}"
                )
                raise Refused(Obstacle(what, UNKNOWN)) from None

    def _refuses_as_well(self, number: int, why: Exception) -> None:
        """The value itself is refused as well, and for the same reason as far as one can tell."""
        try:
            program = self._build(**{**self._params, self._name: self._values.at(number)})
            Simulation(program, numbers=False, strict=self._strict)
        except _REFUSALS as same:
            if type(same) is type(why):
                return
        raise Refused(Obstacle(f"with a {self._name} that is not known: {why}", UNKNOWN))

    def _forms(self, value: int, scope: Scope) -> tuple[Simulation, Program | Mir, bool]:
        """The program compiled with a free number, and the one with its value; whether the runs for
        answers of launch control are the same."""
        free = Free(value, Fraction(self._values.step), scope)
        try:
            with types_of_integers(self._build):
                program = self._build(**{**self._params, self._name: free})
            scope.building = False
            compiled = Simulation(program, numbers=False, strict=self._strict)
            answered = asks_for_clusters(compiled.code.mir) and are_the_same(compiled)
        except Exception as error:
            if scope.refusal is not None:
                raise Refused(scope.refusal) from None
            if isinstance(error, _REFUSALS):
                raise
            what = f"with a {self._name} that is not known: {type(error).__name__}: {error}"
            raise Refused(Obstacle(what, raised_at(error))) from error
        if scope.refusal is not None:
            raise Refused(scope.refusal)
        return compiled, self._build(**{**self._params, self._name: value}), answered
