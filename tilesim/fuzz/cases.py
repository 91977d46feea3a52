"""One configuration of a kernel to check, as plain data, and what became of it."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from itertools import count, product
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

from tilesim.checker import Report, check
from tilesim.checker.report import whole
from tilesim.dsl.kernel import Kernel
from tilesim.errors import InvalidProgram, TilesimError, UsageError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.loader import Given, Target, is_ptx, load, load_one
from tilesim.loader.user_code import user_code
from tilesim.mistakes.table import Mutant, mutants
from tilesim.records import dataclass, replace

#: defaults up to this are counts, whose neighbours are interesting; larger ones are sizes
_COUNTS = 16
#: how often a configuration is drawn again that was there before, until one is looked up
_DRAWS = 20
#: values of one parameter at most
_MOST_VALUES = 100_000
Value = int | bool | float | str | None
Params = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Settings:
    """How every case of a campaign is checked."""

    strict: Strict = "practice"
    schedules: int = 64
    budget: int = 50_000


@dataclass(frozen=True)
class Case:
    """The ``number``-th case of a campaign: the kernel, its parameters, the seed of its schedules.

    ``fault``: a mutant is checked instead, chosen by this number. ``launches``: files with launch
    descriptions of a kernel in PTX, if they are not beside it.
    """

    number: int
    target: str
    params: Params
    settings: Settings
    seed: int
    fault: int | None = None
    launches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What the check of a case said.

    ``verdict`` is that of `tilesim.check`, ``rejected`` (by the verifier), ``refused`` (the kernel
    raises for these parameters) or ``error``. ``fault`` names the injected fault. ``schedules``
    were tried. ``numbers`` and ``ptx`` are about mutants that pass, see `tilesim.fuzz.judge`.
    """

    case: Case
    verdict: str
    rules: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    message: str = ""
    fault: str = ""
    where: str = ""
    seconds: float = 0.0
    schedules: int = 0
    numbers: str = ""
    ptx: tuple[str, ...] = ()


def kernel_of(target: str) -> Kernel:
    """The one kernel that ``target`` names; loaded once per working folder.

    Raises:
        UsageError: it names several kernels, a program without parameters, or PTX.
        TargetError: it cannot be loaded.
    """
    if is_ptx(target):
        raise UsageError(
            f"{target} is PTX, which has no parameters to vary; "
            "tilesim fuzz --mutate injects faults"
        )
    return _kernel_in(os.getcwd(), target)


@lru_cache(maxsize=64)
def _kernel_in(folder: str, target: str) -> Kernel:
    found: tuple[Target, ...] = load(target)
    kernels = {id(t.kernel): t.kernel for t in found if t.kernel is not None}
    if len(kernels) != 1:
        what = f"has {len(found)} kernels" if len(found) > 1 else "is a finished program"
        raise UsageError(f"{target} {what}; name one parametrised kernel, file.py::kernel")
    (kernel,) = kernels.values()
    return kernel


def ptx_of(target: str, launches: tuple[str, ...] = ()) -> PtxMutants | None:
    """The one kernel in PTX that ``target`` names, with its launch; None if it is no PTX.

    Raises:
        UsageError: it names several kernels.
        TargetError: it cannot be loaded. LaunchError, PtxError: as `Target.form`.
    """
    return _ptx_in(os.getcwd(), target, launches) if is_ptx(target) else None


@dataclass(frozen=True)
class PtxMutants:
    """A kernel in PTX with its launch, and its mutants."""

    name: str
    program: Mir
    mutants: tuple[Mutant[Mir], ...]


@lru_cache(maxsize=4)
def _ptx_in(folder: str, target: str, launches: tuple[str, ...]) -> PtxMutants:
    found = load_one(target, Given(launches=tuple(map(Path, launches))))
    program = found.form()
    assert isinstance(program, Mir)
    return PtxMutants(found.id, program, tuple(mutants(program)))


def checked(case: Case) -> tuple[Program | Mir, Report]:
    """Builds and checks a case.

    Raises:
        InvalidProgram: the program is rejected.
        KeyboardInterrupt: the user has interrupted the check.
    """
    program, mutant = _built(case)
    settings = case.settings
    changed = program if mutant is None else mutant.program
    report = check_whole(
        changed, strict=settings.strict, schedules=settings.schedules, budget=settings.budget,
        seed=case.seed, inputs=_inputs(case),
    )  # fmt: skip
    return changed, report


def check_whole(program: Program | Mir, **settings: Any) -> Report:
    """As `check`, which reports what it has if the user interrupts it: here no case is half done,
    and the campaign ends.

    Raises:
        KeyboardInterrupt: the user has interrupted the check.
    """
    return whole(check(program, **settings))


def _built(
    case: Case,
) -> tuple[Program, Mutant[Program] | None] | tuple[Mir, Mutant[Mir] | None]:
    """The right program, and the fault that the case injects."""
    ptx = ptx_of(case.target, case.launches)
    if ptx is not None:
        return ptx.program, None if case.fault is None else ptx.mutants[case.fault]
    program = kernel_of(case.target).build(**dict(case.params))
    every = [] if case.fault is None else list(mutants(program))
    return program, every[(case.fault or 0) % len(every)] if every else None


def _inputs(case: Case) -> dict[str, Any] | None:
    """The kernel's own inputs, which control flow may depend on."""
    if is_ptx(case.target):
        return None
    kernel = kernel_of(case.target)
    if kernel.inputs is None:
        return None
    own = {n: v for n, v in case.params if n in kernel.params}
    return kernel.inputs(np.random.default_rng(0), **{**kernel.params, **own})


def run_case(case: Case) -> Outcome:
    """Checks one case; whatever goes wrong becomes an outcome."""
    start = perf_counter()
    outcome = _run(case)
    return replace(outcome, seconds=perf_counter() - start)


def _run(case: Case) -> Outcome:
    try:
        mutant = _built(case)[1]
        result = outcome_of(case, checked(case)[1])
    except InvalidProgram as error:
        result, mutant = rejected(case, error), _built(case)[1]
    except (TilesimError, ValueError, AssertionError, ArithmeticError) as error:
        return Outcome(case, "refused", message=f"{type(error).__name__}: {error}")
    except Exception as error:
        return Outcome(case, "error", message=f"{type(error).__name__}: {error}")
    if mutant is not None:
        result = replace(result, fault=mutant.fault, where=str(mutant))
    return result


def outcome_of(case: Case, report: Report, message: str = "") -> Outcome:
    """What a report says of a case; ``message``: if nothing is found."""
    rules = tuple(dict.fromkeys(f.rule for f in report.findings))
    schedules = report.stats.schedules
    if not report.findings:
        return Outcome(case, report.verdict, rules, (), message, schedules=schedules)
    head = report.findings[0]
    lines = tuple(map(str, head.locations))
    return Outcome(case, report.verdict, rules, lines, head.message, schedules=schedules)


def rejected(case: Case, error: InvalidProgram) -> Outcome:
    """What becomes of a case whose program the verifier rejects."""
    first = error.diagnostics[0]
    rules = tuple(dict.fromkeys(d.rule for d in error.diagnostics))
    return Outcome(case, "rejected", rules, (str(first.loc),), first.message)


# ------------------------------------------------------------------ generating


def space(
    kernel: Kernel, given: Mapping[str, str], named: Collection[str] = ()
) -> dict[str, tuple[Value, ...]]:
    """The values of each parameter: those given (``1,2,4``, ``1..8``), or around the default, which
    is left out if it is no plain value: cases go to other processes. The kernel has it anyway.

    The kernel's scalars (``k.scalar``) have the value that it gives them, unless others are given
    or they are ``named``.

    Raises:
        UsageError: a parameter does not exist, or a value does not fit.
    """
    wanted = {*given, *named}
    scalars = scalars_of(kernel) if wanted - set(kernel.params) else {}
    known = {**scalars, **kernel.params}
    unknown = sorted(wanted - set(known))
    if unknown:
        raise UsageError(
            f"kernel {kernel.name} has no parameter {', '.join(unknown)}; "
            f"it has {', '.join([*kernel.params, *scalars]) or 'none'}"
        )
    trips = counting(kernel.params, "trips")
    iterations = rounds(kernel.params)
    return {
        name: _parse(name, given[name], default)
        if name in given
        else _around(default, iterations if name in trips else ())
        for name, default in known.items()
        if name in wanted or (name in kernel.params and plain(default))
    }


def plain(value: object) -> bool:
    """Whether every process knows it, and not only one that has loaded the kernel's file."""
    return value is None or type(value) in (int, bool, float, str)


def scalars_of(kernel: Kernel) -> dict[str, int]:
    """The by-value parameters of a kernel and their values; none of one that is rejected.

    Raises:
        TargetError: the kernel's function raises.
    """
    try:
        with user_code("", f"building {kernel.name}"):
            return kernel.scalars()
    except InvalidProgram:
        return {}


def _around(default: Any, iterations: tuple[int, ...]) -> tuple[Value, ...]:
    """Values near a default, and the ``turns`` at which the loop of a ring may go wrong."""
    match default:
        case bool():
            return (False, True)
        case int() if default <= _COUNTS:
            return tuple(sorted({*range(1, max(4, default + 2)), *iterations}))
        case int():
            sizes = {default // 2, default, default * 3 // 2, 2 * default}
            return tuple(sorted({*sizes, *iterations}))
        case _:
            return (default,)


def configurations(domain: Mapping[str, tuple[Value, ...]]) -> int:
    """How many different sets of values there are."""
    return prod(len(_different(values)) for values in domain.values())


def _different(values: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple({repr(value): value for value in values}.values())


def _parse(name: str, text: str, default: Any) -> tuple[Value, ...]:
    values: list[Value] = []
    for part in text.split(","):
        low, dots, high = part.partition("..")
        try:
            if dots:
                values += range(int(low), int(high) + 1)[: _MOST_VALUES + 1]
            else:
                values.append(_one(part, default))
        except ValueError:
            raise UsageError(
                f"parameter {name}: {part!r} is neither a value like {default!r} nor a range 1..8"
            ) from None
    if not values:
        raise UsageError(f"parameter {name}: {text!r} is empty")
    if len(values) > _MOST_VALUES:
        raise UsageError(f"parameter {name}: {text!r} is more than {_MOST_VALUES} values")
    return tuple(values)


def _one(text: str, default: Any) -> Value:
    match default:
        case bool():
            if text.lower() not in ("0", "1", "false", "true"):
                raise ValueError(text)
            return text.lower() in ("1", "true")
        case int():
            return int(text, 0)
        case float():
            return float(text)
        case _:
            return text


def generate(
    target: str,
    domain: Mapping[str, tuple[Value, ...]],
    settings: Settings,
    seed: int,
    *,
    mutate: bool = False,
) -> Iterator[Case]:
    """Cases, the first with the defaults: each configuration once, or mutants of them without end.

    They depend on nothing but the seed.
    """
    defaults = kernel_of(target).params
    seen: set[str] = set()
    left = (p for p in _all_of(domain) if repr(p) not in seen)
    for number in count():
        rng = random.Random(f"{seed}/{number}")
        if not mutate and len(seen) == configurations(domain):
            return
        params = tuple((name, rng.choice(values)) for name, values in domain.items())
        if number == 0:
            own = {n: v for n, v in defaults.items() if v in domain.get(n, ())}
            params = tuple({**dict(params), **own}.items())
        tries = 0
        while not mutate and repr(params) in seen:
            tries += 1
            if tries > _DRAWS:
                params = next(left)
                break
            params = tuple((name, rng.choice(values)) for name, values in domain.items())
        seen.add(repr(params))
        fault = rng.randrange(1 << 30) if mutate else None
        yield Case(number, target, params, settings, rng.randrange(1 << 30), fault)


def _all_of(domain: Mapping[str, tuple[Value, ...]]) -> Iterator[Params]:
    """Every configuration, in the order of the values."""
    for chosen in product(*map(_different, domain.values())):
        yield tuple(zip(domain, chosen, strict=True))


def every_mutant(
    target: str, launches: tuple[str, ...], settings: Settings, seed: int,
    domain: Mapping[str, tuple[Value, ...]] | None = None,
) -> Iterator[Case]:  # fmt: skip
    """Every mutant of a kernel once, of each configuration in ``domain`` (PTX has none), in an
    order that the seed draws."""
    ptx = ptx_of(target, launches)
    name, rng, numbers = target if ptx is None else ptx.name, random.Random(seed), count()
    for params in _all_of(domain or {}):
        if ptx is None:
            made = sum(1 for _ in mutants(kernel_of(target).build(**dict(params))))
        else:
            made = len(ptx.mutants)
        for fault in rng.sample(range(made), made):
            seed_of_case = rng.randrange(1 << 30)
            yield Case(next(numbers), name, params, settings, seed_of_case, fault, launches)


def simpler(case: Case, domain: Mapping[str, tuple[Value, ...]]) -> Iterator[Case]:
    """Cases with one parameter set to an earlier value of its domain."""
    params = dict(case.params)
    for name, value in params.items():
        values = domain[name]
        for other in values[: values.index(value)]:
            yield replace(case, params=tuple({**params, name: other}.items()))


def shrink(case: Case, outcome: Outcome, domain: Mapping[str, tuple[Value, ...]]) -> Outcome:
    """The simplest case found with the same first finding."""
    best, tries = outcome, 60
    improved = True
    while improved and tries > 0:
        improved = False
        for candidate in simpler(best.case, domain):
            tries -= 1
            result = run_case(candidate)
            if result.rules[:1] == outcome.rules[:1] and result.verdict == outcome.verdict:
                best, improved = result, True
                break
            if tries <= 0:
                break
    return best


What = Literal["stages", "trips", "tiles"]

#: parameters by what their name says
USUAL: dict[What, tuple[str, ...]] = {
    "stages": ("stages", "num_stages", "depth_stages", "pipe_stages"),
    "trips": ("trips", "iterations", "iters", "n", "num_tiles_k", "k_tiles", "count", "items"),
    "tiles": ("tiles", "num_tiles", "work_items"),
}
#: stages of a kernel that does not say how many it has
_STAGES = 2


def counts(default: object) -> bool:
    """Whether a parameter with this default is a number of something."""
    return isinstance(default, int) and not isinstance(default, bool)


def counting(params: Mapping[str, Any], what: What) -> tuple[str, ...]:
    """The parameters that count stages, trips or tiles, by their names; ``params``: defaults."""
    found = [name for name in USUAL[what] if name in params]
    found += [name for name in params if name.endswith(f"_{what}") and name not in found]
    return tuple(name for name in found if counts(params[name]))


def rounds(params: Mapping[str, Any]) -> tuple[int, ...]:
    """Trip counts around one and two rounds of a kernel's ring, none left out between them where
    the ring is small."""
    stages = max((params[name] for name in counting(params, "stages")), default=_STAGES)
    if stages <= 8:
        return tuple(range(1, 2 * stages + 2))
    around = (n + step for n in (stages, 2 * stages) for step in (-1, 0, 1))
    return (1, 2, *around)
