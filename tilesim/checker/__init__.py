"""`check`: one simulated run with a certificate, further schedules where it does not apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import NDArray

from tilesim.checker.options import NO_LIMITS, searching
from tilesim.checker.report import INTERRUPTED, Given, Report, Stats, not_run, whole
from tilesim.checker.verdict import Checking
from tilesim.checker.witness import Witness, repeat, replay
from tilesim.dsl.kernel import Kernel, built, public
from tilesim.errors import InvalidProgram
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.limits import Timer, duration, patient
from tilesim.records import replace
from tilesim.sim.machine.simulate import Simulation, check_inputs, kernel_of
from tilesim.sim.schedulers.frontier import MAX_SCHEDULES

if TYPE_CHECKING:
    from tilesim.checker.for_all import Asked
    from tilesim.repair import Trial, Wanted

__all__ = ["DEFAULT_BUDGET", "INTERRUPTED", "MAX_SCHEDULES", "Report", "Stats", "check", "replay"]

#: warp instructions the systematic exploration may execute by default: about a second
DEFAULT_BUDGET = 50_000


@patient()
@public
def check(
    program: Program | Mir | Kernel | Callable[..., Program | Mir],
    *,
    strict: Strict = "practice",
    schedules: int = 64,
    budget: int | timedelta = DEFAULT_BUDGET,
    max_schedules: int = MAX_SCHEDULES,
    preemptions: int | None = None,
    jobs: int = 1,
    seed: int = 0,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    frontier: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    time_limit: timedelta | float | Timer | None = None,
    suggest: timedelta | float | Wanted | None = None,
    skip: bool = True,
    for_all: Given | None = None,
    params: Mapping[str, Any] | None = None,
    certificate: bool = False,
    plain: Callable[[], Mir] | None = None,
) -> Report:
    """Checks ``program`` for deadlocks, races and misuse, for every schedule where it can.

    Runs the timed schedule once. If it shows a defect the verdict is ``failed``; if the
    certificate holds, ``proved``. Otherwise schedules directed at the failed conditions are tried,
    then all of them that can differ (``exhausted`` if that succeeds within the limits), then
    ``schedules`` random ones: ``failed`` with a witness, or ``bounded``.

    An interrupt (Ctrl-C) or the time limit ends the check: the report has what was found so far.

    Args:
        program: what to check; a kernel is checked with its default parameters.
        strict: ``"ptx"`` (the text as written) or ``"practice"`` (docs/semantics.md).
        schedules: directed and random schedules to try; fewer of long runs if schedules cannot
            decide what is left open.
        budget: limit of the exploration: warp instructions, or a timedelta, which limits the timed
            run as well (unless it is 0).
        max_schedules: schedules to explore at most.
        preemptions: explore only schedules with at most so many preemptions of an agent that could
            continue; ``exhausted`` only if that left none out.
        jobs: processes that run the random schedules; the report is the same for any number. A
            script needs ``if __name__ == "__main__"``, as with any pool.
        inputs: global tensors that control flow depends on (zeros where missing).
        frontier: `Report.frontier` of an earlier check, whose exploration continues.
        progress: called with the number of schedules done.
        time_limit: of the whole check: seconds, a timedelta, or a clock that has started when the
            program was read.
        suggest: look for repairs of a program that fails, for so many seconds or a timedelta.
        skip: leave out repetitions; the report is the same without.
        for_all: values of parameters for which ``program``, a function that makes programs, is
            proved as well (`tilesim.checker.for_all`); ``params`` are those of this check.
        certificate: make `Report.certificate` of a proof, and recheck it.
        plain: makes the plain form (`tilesim.ptx.plain`) of a program in PTX for the recheck.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: an argument is out of range, or the frontier is not one of this check.
    """
    search = searching(
        schedules, budget, max_schedules, preemptions, jobs, seed, frontier, skip=skip
    )
    timer = time_limit if isinstance(time_limit, Timer) else Timer(
        None if time_limit is None else duration("time_limit", time_limit)
    )  # fmt: skip
    asked = None
    if for_all or params:
        from tilesim.checker.for_all import Asked  # what only checks for other values need

        asked = Asked.of(cast(Any, program), for_all or {}, params or {})
    program = built(cast(Any, program)) if asked is None else asked.program
    checked = check_inputs(kernel_of(program), inputs or {})
    wanted = None if suggest is None else _wanted(suggest)

    def prove(mended: Program | Mir | Simulation, thorough: bool, left: float) -> Trial:
        from tilesim.repair import Trial

        limits = search if thorough else replace(search, schedules=0, limits=NO_LIMITS)
        until = Timer(timedelta(seconds=left))
        said = whole(Checking(mended, strict, checked, limits, None, until, explains=False).check())
        return Trial(said.verdict, said.findings, said.stats.instructions)

    try:
        with timer.interrupting():
            report = Checking(program, strict, checked, search, progress, timer).check()
    except KeyboardInterrupt:  # before its first instruction
        if not timer.reason():
            raise
        report = not_run(kernel_of(program).name, timer.reason())
    except InvalidProgram as error:
        if wanted is None:
            raise
        from tilesim.repair import Mendable  # what only a failure needs
        from tilesim.repair.suggest import suggest as repair

        found = repair(program, error.diagnostics, prove, wanted, strict, checked)
        raise Mendable(error.diagnostics, found) from error

    def by_itself(other: Program | Mir) -> Report:
        from tilesim.checker.for_all import fitting

        given = fitting(checked, other)
        return whole(Checking(other, strict, given, search, None, timer).check())

    if asked is not None:
        alone = partial(prove_alone, strict, inputs=checked)
        report = asked.added_to(report, alone, strict, timer, by_itself)
    if certificate and report.verdict == "proved" and report.is_whole:
        report = _certified(report, program, plain, strict, timer, checked, asked)
    if wanted is None or report.verdict != "failed":
        return report
    from tilesim.repair.suggest import suggest as repair

    witness = Witness.from_dict(report.witness or {})
    again = None if witness.altered else partial(repeat, witness=witness, inputs=checked)
    cost = report.stats.instructions
    found = repair(program, report.findings, prove, wanted, strict, checked, again, cost)
    return replace(report, repairs=found)


def _wanted(suggest: timedelta | float | Wanted) -> Wanted:
    """What is to be suggested where a check fails."""
    from tilesim.repair import Wanted

    return suggest if isinstance(suggest, Wanted) else Wanted(duration("suggest", suggest))


def _certified(
    report: Report, program: Program | Mir, plain: Callable[[], Mir] | None, strict: Strict,
    timer: Timer, inputs: Mapping[str, NDArray[Any]], asked: Asked | None,
) -> Report:  # fmt: skip
    """A proof with its certificate, and what the proof kernel says of that; ``asked``: whether it
    is one of all values of a parameter. An interrupt leaves the proof without them."""
    from tilesim.checker.certificates import FORM, certified, certified_for_all, certified_plain

    given, trusts = report.conditions, ""
    try:
        if plain is None or not isinstance(program, Mir):
            made, answer = certified(program, strict, given, timer.until, inputs)
        else:
            made, answer, trusts = certified_plain(
                program, plain, strict, given, timer.until, inputs
            )
        certifies = answer.verdict == "certified"
        if report.for_all is not None and asked is not None and certifies:
            build = asked.build if plain is None else None
            made, answer = certified_for_all(
                made, program, build, asked.arguments, asked.values, report.for_all, timer.until
            )
            trusts = FORM
    except KeyboardInterrupt:
        from tilesim.proof.rules import Answer

        answer = Answer("not covered", what=INTERRUPTED)
        return replace(report, reasons=(INTERRUPTED, *report.reasons), rechecked=answer)
    if answer.verdict == "refuted":
        why = f"the proof kernel refutes the proof, which is a bug in tilesim: {answer.what}"
        covers = f"the timed schedule; strictness {strict}; not a proof"
        nothing = replace(report, verdict="bounded", covers=covers, leanings=())
        return replace(nothing, reasons=(why,), rechecked=answer)
    return replace(report, certificate=made, rechecked=answer, recheck_trusts=trusts)


def prove_alone(
    strict: Strict, program: Program | Mir, timer: Timer,
    prepare: Callable[[Simulation], None] | None, inputs: Mapping[str, NDArray[Any]] | None = None,
) -> Report:  # fmt: skip
    """What a check says without any other schedule; ``prepare`` sees what is going to be run."""
    from tilesim.checker.for_all import fitting

    given, search = fitting(inputs or {}, program), searching(0, 0, 0, None, 1, 0, None)
    checker = Checking(program, strict, given, search, None, timer, explains=prepare is None)
    if prepare is not None:
        prepare(checker.simulation)
    return whole(checker.check())
