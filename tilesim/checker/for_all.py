"""Proves a kernel for every value of a parameter, from runs for some of them.

Each run is followed (`tilesim.sim.affine`) and found to stand for all values that are some number
of steps larger, up to a limit. Values that no run stands for are run, from the least on, until none
is left: those before a pipeline is in a steady state one by one, then one per residue. What is
known of the values so far is put together in the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import product
from math import lcm
from typing import TYPE_CHECKING, Any, Protocol, cast

from numpy.typing import NDArray

from tilesim.checker.launch_control import are_the_same
from tilesim.checker.report import Claim, Given, Values
from tilesim.dsl.kernel import Kernel, built
from tilesim.errors import TilesimError, UsageError
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.limits import Timer
from tilesim.records import dataclass, field, replace
from tilesim.sim.affine.cluster_plan import asks_for_clusters
from tilesim.sim.affine.free_parameter import (
    LONGEST,
    UNBOUNDED,
    Free,
    Obstacle,
    Refused,
    Scope,
    forms,
    numbers_in,
    raised_at,
    types_of_integers,
)
from tilesim.sim.affine.parameter_values import Limit, Traced
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.simulate import Simulation, check_inputs, kernel_of

if TYPE_CHECKING:
    from tilesim.checker.report import Report


#: how many values are enough where a type, or what is allowed, ends them
_LARGE = 1 << 18
#: verdicts that leave nothing open
RIGHT = ("proved", "exhausted")


@dataclass(frozen=True)
class Run:
    """The run for the value of a number. It stands for ``steps`` more; ``limit`` is why not for
    others. ``report`` is None if the kernel refuses the value, and ``steps`` more."""

    number: int
    steps: int
    limit: Limit | None
    report: Report | None
    modulus: int
    traced: Traced | None
    #: its report is that of a whole check
    settled: bool = False

    @property
    def proved(self) -> bool:
        """Whether a check of this program says so."""
        return self.report is not None and self.report.verdict in RIGHT


@dataclass
class Residue:
    """What is known of the values of one residue: all before number ``left``, None: all of them;
    from number ``ends`` on they are refused."""

    left: int | None
    taken: bool = False
    ends: int | None = None
    why: Obstacle | None = None


@dataclass
class Cover:
    """What is known of all values, by residue."""

    residues: list[Residue]
    alone: int = 0
    refused: list[int] = field(default_factory=list)

    def next(self) -> int | None:
        """The least number of a value of which nothing is known; None: there is none."""
        left = [r.left for r in self.residues if r.left is not None]
        return min(left, default=None)

    def add(self, run: Run) -> None:
        """A value is proved, or refused, and more with it."""
        step = len(self.residues)
        residue = self.residues[run.number % step]
        following = run.number + (run.steps + 1) * step
        if run.report is None:
            self.refused.append(run.number)
            if residue.taken and residue.ends is None:
                residue.ends = run.number - step
                residue.why = run.limit.obstacle if run.limit is not None else None
            residue.left = None if run.steps == UNBOUNDED else following
            return
        residue.taken, residue.ends = True, None
        self.alone += not run.steps
        residue.why = None if run.traced is None else run.traced.why
        if residue.why is None and run.limit is not None:
            residue.why = run.limit.obstacle
        residue.left = following
        if run.limit is None:
            residue.left = None
        elif run.limit.fits and following - step >= _LARGE:
            residue.left, residue.ends = None, following - step
            residue.why = run.limit.obstacle

    def refine(self, step: int) -> None:
        """The same for residues of a multiple of the step."""
        coarse = len(self.residues)
        fine = [replace(self.residues[number % coarse]) for number in range(step)]
        for number, residue in enumerate(fine):
            if residue.left is not None:
                residue.left += (number - residue.left) % step
        self.residues = fine

    def limit(self) -> tuple[int, Obstacle] | None:
        """The number of the last value of which something is known, and why."""
        ends = [(r.ends, r.why) for r in self.residues if r.ends is not None and r.why is not None]
        return min(ends, key=lambda end: end[0], default=None)


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
        congruent = (n for n in range(number, number + modulus))
        return next((n for n in congruent if not (self._values.at(n) - default) % modulus), number)

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
            self._require_same_for(free, number, min(steps * step, scope.last), step)
        return Run(number, steps, limit, report, scope.modulus, traced)

    def _require_same_for(self, free: Simulation, number: int, last: int, step: int) -> None:
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
                    f"what the kernel makes of {self._name} = {values.at(other)} differs from what "
                    f"it makes of an unknown number: {str(why).splitlines()[0]}"
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
        raise Refused(Obstacle(f"with an unknown {self._name}: {why}", UNKNOWN))

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
            what = f"with an unknown {self._name}: {type(error).__name__}: {error}"
            raise Refused(Obstacle(what, raised_at(error))) from error
        if scope.refusal is not None:
            raise Refused(scope.refusal)
        return compiled, self._build(**{**self._params, self._name: value}), answered


#: choices of the parameters that are taken one by one
_CHOICES = 64


@dataclass(frozen=True)
class Asked:
    """A program, how it was made, and for which ``values`` of parameters it is to be proved.

    ``build`` is a `Kernel`, or another function that makes programs of ``arguments``.
    """

    program: Program | Mir
    build: Callable[..., Program | Mir] | None
    arguments: Mapping[str, Any]
    values: Mapping[str, Values]

    @classmethod
    def of(
        cls, program: Program | Mir | Callable[..., Program | Mir], given: Given,
        params: Mapping[str, Any],
    ) -> Asked:  # fmt: skip
        """What `tilesim.check` is asked; ``given`` are values by parameter: None is every one from
        1 on, else a range, or a text like ``64..:64`` (`Values.parse`).

        A parameter without a default, and not among ``params``, has the first of its values.

        Raises:
            UsageError: there are no such values, or a finished program has no parameters.
        """
        for what, named in (("for_all", given), ("params", params)):
            if not isinstance(named, Mapping):
                raise UsageError(f"{what} must be values by the names of parameters, not {named!r}")
        values = {name: Values.of(these) for name, these in given.items()}
        if not values and not params:
            return cls(built(cast(Any, program)), None, {}, {})
        if isinstance(program, Program | Mir):
            raise UsageError(
                "a finished program has no parameters: for_all and params need a kernel"
            )
        if not callable(program):
            raise UsageError(f"expected a kernel or a program, got {program!r}")
        defaults: dict[str, Any] = {}
        if isinstance(program, Kernel):
            defaults = _defaults(program, params)
            for name in sorted(values.keys() - defaults.keys()):
                raise UsageError(
                    f"kernel {program.name} has no parameter {name}; it has {', '.join(defaults)}"
                )
        firsts = {n: v.first for n, v in values.items() if n not in defaults}
        # what the host passes by value follows the parameters, unless it is asked for or given
        passed = defaults.keys() - getattr(program, "params", {}).keys() - values.keys()
        own = {n: v for n, v in defaults.items() if n not in passed}
        return cls(program(**firsts | {**params}), program, {**own, **firsts, **params}, values)

    def added_to(
        self, report: Report, prove: Prove, strict: Strict, timer: Timer,
        check: Callable[[Program | Mir], Report] | None = None,
    ) -> Report:  # fmt: skip
        """``report``, of this program, and what can be said of all values.

        It covers them if all are proved; it is that of a value for which the check fails, if there
        is one. Otherwise it is what it was, and says of which values, and why. Of several
        parameters with values without end all are looked at for one, and the others are what they
        are in this program. ``check``: as `ForAll` takes it. Of a program that is not proved
        nothing is said for other values.
        """
        if not self.values or self.build is None:
            return report
        name, others = _main(self.values)
        here = ", ".join(f"{n} = {self.arguments[n]}" for n in self.values if n in self.arguments)
        if report.verdict != "proved":
            return self._of_one(report, here)
        claims: list[Claim] = []
        for choice in others:
            proof = ForAll(
                self.build, {**self.arguments, **choice}, name, self.values[name], prove, strict,
                timer, check=check,
            )  # fmt: skip
            claim = proof.claim()
            claim = _with(claim, choice)
            if proof.failing is not None and claim.at is not None:
                return _failing(proof.failing, claim, {**choice, name: claim.at})
            claims.append(claim)
        endless = {n: self.arguments[n] for n in _endless(self.values, name)}
        return _whole(report, claims, name, self.values, endless, here)

    def _of_one(self, report: Report, here: str) -> Report:
        """What a report says of one choice of values, of which all that were asked for hang."""
        wanted = ", ".join(values.says(name) for name, values in self.values.items())
        why = Obstacle(f"{here} is {report.verdict}", UNKNOWN)
        rules = ", ".join(dict.fromkeys(f.rule for f in report.findings))
        said = (report.verdict, f"{here}: {rules}" if report.verdict == "failed" else here)
        parts = (said,) if report.verdict == "failed" else (said, ("not shown", wanted))
        claim = Claim(wanted, False, why, parts=parts)
        if report.verdict != "exhausted":
            return replace(report, for_all=claim)
        reasons = (*report.reasons, f"not shown for {wanted}: {why}")
        return replace(report, reasons=reasons, for_all=claim)


def _endless(wanted: Mapping[str, Values], name: str) -> list[str]:
    """The parameters that have values without end, but for one."""
    return [n for n, values in wanted.items() if n != name and values.last is None]


def _defaults(kernel: Kernel, params: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a kernel's parameters, and of the scalars that the host passes to it."""
    return {**kernel.params, **kernel.scalars(**params)}


def fitting(inputs: Mapping[str, Any], program: Program | Mir) -> dict[str, NDArray[Any]]:
    """The inputs of a check, for the program of another value.

    Raises:
        Refused: a tensor has another shape in this program.
    """
    try:
        return check_inputs(kernel_of(program), inputs)
    except UsageError as why:
        raise Refused(Obstacle(str(why), UNKNOWN)) from why


def _main(wanted: Mapping[str, Values]) -> tuple[str, list[dict[str, int]]]:
    """The parameter whose values are not taken one by one, and the choices of the others that
    have some last value."""
    name = max(wanted, key=lambda n: (wanted[n].last is None, wanted[n].count or 0))
    counts = {n: values.count for n, values in wanted.items() if n != name and values.count}
    each = [[(n, wanted[n].at(i)) for i in range(number)] for n, number in counts.items()]
    chosen = [dict(choice) for choice in product(*each)]
    if len(chosen) > _CHOICES:
        raise UsageError(f"{len(chosen)} choices of {', '.join(counts)} are too many")
    return name, chosen


def _with(claim: Claim, choice: Mapping[str, int]) -> Claim:
    """A claim for one choice of other parameters."""
    if not choice:
        return claim
    where = ", ".join(f"{name} = {value}" for name, value in choice.items())
    return replace(claim, parts=tuple((said, f"{where}, {of}") for said, of in claim.parts))


def _failing(report: Report, claim: Claim, at: Mapping[str, int]) -> Report:
    where = ", ".join(f"{name} = {value}" for name, value in at.items())
    claim = replace(claim, where=tuple(at.items()))
    return replace(report, covers=f"{where}; {report.covers}", for_all=claim)


def _whole(
    report: Report, claims: list[Claim], name: str, wanted: Mapping[str, Values],
    endless: Mapping[str, Any], here: str,
) -> Report:  # fmt: skip
    """The claims of all choices as one; ``endless`` are parameters that have one value in all of
    them, although there is no end of others; ``here``: the values of the program of ``report``."""
    text = ", ".join(values.says(name) for name, values in wanted.items())
    open_ = next((claim for claim in claims if not claim.proved), None)
    if open_ is None and endless:
        at = "".join(f", {n} = {value}" for n, value in endless.items())
        shown = tuple((said, f"{of}{at}") for said, of in claims[0].parts)
        open_ = replace(
            claims[0], proved=False, obstacle=_one_at_a_time(claims[0], endless),
            parts=(*shown, ("not shown", text)),
        )  # fmt: skip
    if open_ is not None:
        parts = open_.parts
        if parts[0][0] != "proved":
            parts = (("proved", here), *parts)
        claim = replace(open_, wanted=text, parts=parts)
        far = "" if open_.upto is None else f"; shown up to {name} = {open_.upto}"
        reason = f"not shown for {text}: {claim.obstacle}{far}"
        return replace(report, reasons=(*report.reasons, reason), for_all=claim)
    ends = [claim.limit for claim in claims if claim.limit is not None]
    limit = min(ends, key=lambda end: end[0], default=None)
    refused = tuple(dict.fromkeys(value for claim in claims for value in claim.refused))
    said = text
    if limit is not None:
        others = (values.says(n) for n, values in wanted.items() if n != name)
        said = ", ".join([wanted[name].upto(name, limit[0]), *others])
    runs, parts = sum(claim.runs for claim in claims), (("proved", said),)
    whole = Claim(text, True, None, limit, runs, refused, parts=parts, period=claims[0].period)
    return replace(report, covers=f"{report.covers}; {whole.covers}", for_all=whole)


def _one_at_a_time(claim: Claim, endless: Mapping[str, Any]) -> Obstacle:
    """Why a claim about one parameter is none about others that have values without end."""
    other = next(iter(endless))
    at = ", ".join(f"{name} = {value}" for name, value in endless.items())
    return Obstacle(
        f"{other} has values without end as well, give it a last one (`{other}=1..4`); "
        f"with {at} it is shown for {claim.covers}",
        UNKNOWN,
    )
