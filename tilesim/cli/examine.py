"""How ``tilesim check`` checks one kernel: in this process, in another, or on a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import timedelta
from functools import wraps
from json import dumps
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from tilesim.checker import INTERRUPTED as INTERRUPTED_REASON
from tilesim.checker import Report, Stats, check
from tilesim.checker.report import Values, not_run
from tilesim.checker.witness import MAX_TEXT, Witness, replay, retrace
from tilesim.checker.witness import load as load_witness
from tilesim.cli.options import Progress, write_file
from tilesim.errors import UsageError
from tilesim.files import read_regular
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.limits import Timer
from tilesim.loader import Target
from tilesim.loader.ptx import Scalars
from tilesim.loader.python import identify
from tilesim.ptx.demangle import short
from tilesim.records import dataclass, field, replace
from tilesim.repair import Wanted
from tilesim.report.compare import compare
from tilesim.report.result import DRAWN, Checked
from tilesim.report.text import covering
from tilesim.sim.machine.simulate import kernel_of
from tilesim.sim.observers.timeline import Recording

if TYPE_CHECKING:  # most checks look at no machine code
    from tilesim.cli.sass import Sass

Frontier = Mapping[str, Any]


@dataclass(frozen=True)
class Examination:
    """How kernels are checked: the options of ``tilesim check`` (see there)."""

    pictures: bool
    strict: Strict
    schedules: int
    budget: int | timedelta
    time_limit: timedelta | None
    max_schedules: int
    preemptions: int | None
    jobs: int
    seed: int
    shrink: bool
    witness_dir: Path | None
    suggest: timedelta | None = None
    skip: bool = True
    for_all: Mapping[str, Values] = field(default_factory=dict)
    resume: Path | None = None
    recheck: bool = False
    #: how machine code is found that is compared with its PTX; None: it is not
    sass: Sass | None = None
    progress: Progress = field(default_factory=lambda: Progress(quiet=True), compare=False)

    @property
    def settings(self) -> str | None:
        """What a report depends on besides the kernel; None if no reports are kept, as the machine
        code may be another one."""
        if self.sass is not None:
            return None
        limits = self.schedules, self.budget, self.time_limit, self.max_schedules, self.preemptions
        asked = self.suggest, self.for_all
        return repr((self.strict, self.seed, self.recheck, *limits, *asked))

    def keeps(self, report: Report) -> bool:
        """Whether a report is all there is to know of its kernel, so that no later check finds
        more."""
        ended = report.repairs is None or not report.repairs.interrupted
        return ended and report.frontier is None and INTERRUPTED_REASON not in report.reasons

    def shows(self, report: Report) -> bool:
        """Whether something is made of a report besides, also if it was kept: its witness is
        written, or a schedule is shown, which is run again."""
        written = self.witness_dir is not None and report.witness is not None
        return written or _shown(report, self.pictures) is not None

    def __call__(
        self, target: Target, frontier: Frontier | None, known: Report | None = None
    ) -> Checked:
        """Checks one kernel, and with ``shrink`` a smaller one that fails in the same way; if the
        report is ``known``, only what it shows is made."""
        timer = Timer(self.time_limit)
        try:
            with timer.interrupting() if target.ptx is not None else nullcontext():
                program = target.form()
        except KeyboardInterrupt:
            if target.ptx is None or not timer.reason():
                raise
            late = not_run(target.ptx.launch.entry, f"{timer.reason()} before it was read")
            return Checked(target.id, target.ptx.target, late, configuration=target.configuration)
        if known is not None:
            return self._result(target, program, known)
        if target.ptx is None:
            timer = Timer(self.time_limit)  # running a Python file is not limited
        report = self._check(target, program, timer, frontier)
        if target.ptx is not None:
            report = covering(report, target.ptx.launch)
        if self.shrink and report.verdict == "failed":
            self.progress.show(f"shrinking {target.id}")
            target, program, report = self._smaller(target, program, timer, report)
        if report.certificate is not None:
            named = replace(report.certificate, target=target.id)
            report = replace(report, certificate=named)
        code = None
        if self.sass is not None:
            self.progress.show(f"comparing the machine code of {target.id}")
            report, code = self.sass.of(target, program, report, timer)
        return replace(self._result(target, program, report), machine_code=code)

    def _check(
        self, target: Target, program: Program | Mir, timer: Timer,
        frontier: Frontier | None = None,
    ) -> Report:  # fmt: skip
        wanted = None
        if self.suggest is not None:
            wanted = Wanted(
                self.suggest, **reference(target, program, self.seed),
                read=None if target.ptx is None else target.ptx.read_again,
                progress=lambda n, found: self.progress.show(
                    f"repairing {target.id}: {n} edits tried, {found} repair it"
                ),
            )  # fmt: skip
        try:
            return check(
                self._asked(target, program),
                strict=self.strict,
                schedules=self.schedules,
                budget=self.budget,
                time_limit=timer,
                max_schedules=self.max_schedules,
                preemptions=self.preemptions,
                jobs=self.jobs,
                seed=self.seed,
                inputs=target.own_inputs(program, self.seed),
                frontier=frontier,
                suggest=wanted,
                skip=self.skip,
                for_all=self.for_all,
                params=self._given(target) if self.for_all else None,
                certificate=self.recheck,
                plain=None if target.ptx is None else target.ptx.plain,
                progress=lambda n: self.progress.show(f"checking {target.id}: {n} schedules"),
            )
        except UsageError as error:
            if frontier is None:
                raise
            raise UsageError(f"{self.resume}: {error}") from error

    def _asked(
        self, target: Target, program: Program | Mir
    ) -> Program | Mir | Callable[..., Program | Mir]:
        """The program, or the kernel that makes it, if more of its programs are asked for."""
        if not self.for_all:
            return program
        if target.ptx is not None:
            scalars = Scalars(target.ptx)
            self._require_parameters(target.ptx.launch.entry, scalars.params)
            return scalars
        kernel = target.kernel
        if kernel is None:
            raise UsageError(f"--for-all needs a kernel with parameters, {target.id} has none")
        self._require_parameters(kernel.name, _arguments(target))

        @wraps(kernel.function)
        def build(**params: Any) -> Program:
            return replace(target, params=params).build()

        return build

    def _given(self, target: Target) -> dict[str, Any]:
        """The parameters whose values do not follow from others: what the kernel passes by value
        may be computed from the one of which all values are asked."""
        if target.ptx is not None:
            return _arguments(target)
        known = target.arguments.keys() | self.for_all.keys()
        return {n: v for n, v in _arguments(target).items() if n in known}

    def _require_parameters(self, name: str, params: Mapping[str, Any]) -> None:
        unknown = sorted(self.for_all.keys() - params.keys())
        if unknown:
            raise UsageError(
                f"--for-all: kernel {short(name)} has no parameter {unknown[0]}; it has "
                f"{', '.join(params) or 'none'}"
            )

    def _smaller(
        self, target: Target, program: Program | Mir, timer: Timer, report: Report
    ) -> tuple[Target, Program | Mir, Report]:
        """The kernel with the smallest parameters that fail by the same rule, its program, and its
        report."""
        from tilesim.cli.smallest import changed, in_words, smallest  # what only --shrink needs

        rule = report.findings[0].rule
        try:
            less = smallest(target, rule, self.strict, self.schedules, self.seed)
            params = changed(target, less)
            shrunk = less.form() if params else program
            again = self._check(less, shrunk, timer) if params else report
        except KeyboardInterrupt:
            return target, program, replace(report, reasons=(INTERRUPTED_REASON, *report.reasons))
        if not params or again.witness is None or again.findings[0].rule != rule:
            return target, program, report
        witness = replace(Witness.from_dict(again.witness), params=params).to_dict()
        covers = f"{again.covers}; {in_words(target, params)}"
        return less, shrunk, replace(again, covers=covers, witness=witness)

    def _result(self, target: Target, program: Program | Mir, report: Report) -> Checked:
        """The report with what it shows of the failing schedule; its witness is written."""
        self.progress.show(f"reporting {target.id}")
        at, program = _failing(target, program, report)
        own = at.own_inputs(program, self.seed)
        shown = _shown(report, self.pictures)
        recording = None if shown is None else retrace(program, shown, own)
        checked = _checked(target, program, report, recording, self.pictures)
        if self.witness_dir is None or report.witness is None:
            return checked
        name = re.sub(r"[^A-Za-z0-9.=-]+", "_", target.id).strip("_")
        path = self.witness_dir / f"{name}.json"
        write_file(path, dumps(report.witness, indent=2) + "\n")
        if at.ptx is not None and at is not target:
            return checked  # it takes another launch description
        again = f"tilesim check {quote(at.id)} --replay {quote(str(path))}"
        return replace(checked, replay=again + (f" --seed {self.seed}" if self.seed else ""))


def _failing(
    target: Target, program: Program | Mir, report: Report
) -> tuple[Target, Program | Mir]:
    """The program that a report is about, and what makes it: that of other values of parameters if
    all were asked for, and it fails for these."""
    where = {} if report.for_all is None else dict(report.for_all.where)
    if not where:
        return target, program
    if target.ptx is not None:
        return replace(target), Scalars(target.ptx)(**where)
    at = replace(target, params={**target.params, **where})
    if target.kernel is not None:
        at = replace(at, id=identify(target.id.partition("[")[0], target.kernel, at.params))
    return at, at.form()


def _arguments(target: Target) -> dict[str, Any]:
    if target.ptx is not None:
        return Scalars(target.ptx).params
    scalars = target.kernel.scalars(**target.params) if target.kernel else {}
    return {**scalars, **target.arguments}


def _shown(report: Report, pictures: bool) -> Mapping[str, Any] | None:
    """The failing schedule, if it is run again to be shown: one that is not the timed one, or with
    ``pictures`` any that is short enough. What is proved needs none, and to run it again took
    longer than the proof."""
    witness = report.witness
    if witness is None or witness["policy"] != "timed":
        return witness
    return witness if pictures and report.stats.instructions <= DRAWN else None


@dataclass(frozen=True)
class Replay:
    """Repeats the schedule of a witness instead of checking."""

    path: Path
    witness: Witness
    seed: int
    pictures: bool

    def __call__(
        self, target: Target, frontier: Frontier | None, known: Report | None = None
    ) -> Checked:
        """What the schedule shows with ``target``.

        Raises:
            UsageError: the witness is one of another kernel.
        """
        path, witness = self.path, self.witness
        require_parameters(target, witness, path)
        program = target.form()
        own = target.own_inputs(program, self.seed)
        try:
            run = replay(program, witness, own)
            shown = self.pictures or witness.policy != "timed"
            recording = retrace(program, witness.to_dict(), own) if shown else None
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
        stats = Stats(run.stats.instructions, 1, run.stats.ctas)
        covers = f"the schedule of {path}; strictness {witness.strict}"
        reasons = () if run.findings else ("this schedule shows no finding with this program",)
        verdict: Literal["failed", "bounded"] = "failed" if run.findings else "bounded"
        name = kernel_of(program).name
        report = Report(name, verdict, covers, run.findings, reasons, None, stats)
        return _checked(target, program, report, recording, self.pictures)


#: checks a kernel; an exploration that an earlier check left goes on. As data it goes to workers
Examine = Examination | Replay


def require_parameters(target: Target, witness: Witness, path: Path) -> None:
    """Raises a UsageError if the witness in a file is one of other parameters."""
    wrong = {n: v for n, v in witness.params.items() if target.arguments.get(n) != v}
    if wrong:
        values = ",".join(f"{name}={value}" for name, value in wrong.items())
        raise UsageError(f"{path} is a witness of parameters that {target.id} has not: {values}")


def read_witness(path: Path) -> Witness:
    """The witness in a file.

    Raises:
        UsageError: it cannot be read, or holds none.
    """
    try:
        return load_witness(read_regular(path, MAX_TEXT).decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UsageError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _checked(
    target: Target, program: Program | Mir, report: Report, recording: Recording | None,
    pictures: bool,
) -> Checked:  # fmt: skip
    """The result; only a program with a tree has a diagram."""
    diagram = ""
    if pictures and isinstance(program, Program):
        from tilesim.report.html.diagram import drawn  # what only a page needs

        diagram = drawn(program)
    return Checked(
        target.id, kernel_of(program).target.name, report, "", diagram, recording,
        configuration=target.configuration,
    )  # fmt: skip


def reference(target: Target, program: Program | Mir, seed: int) -> dict[str, Any]:
    """What tells a repair that still computes what the kernel's reference does: as `Wanted` has
    it; nothing without a reference."""
    if target.kernel is None or target.kernel.reference is None:
        return {}
    numbers = target.inputs(kernel_of(program), seed)
    expected = target.expected(numbers) or {}
    return {
        "numbers": numbers,
        "same": lambda outputs: all(c.equal for c in compare(outputs, expected)),
    }
