"""The pytest plugin: kernels checked as tests, findings shown as failures.

::

    from tilesim import mark
    from my_kernels import gemm

    @mark.check(gemm, params={"stages": [1, 2, 4], "trips": [0, 1, 9]})
    def test_gemm(): ...

or, with a program made in the test, the fixture ``tilesim_check``; under the fixture
``triton_check`` a launch of a Triton kernel checks it. This module lies outside the
package because pytest imports it at every start: it imports tilesim only when a test needs it.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tilesim import Kernel, Program, Report
    from tilesim.checker.assumptions import Leaning
    from tilesim.errors import InvalidProgram
    from tilesim.report.machine_code import MachineCode
    from tilesim.triton.testing import Checks

MARKER = "tilesim"
#: what the marker and the fixture take besides the kernel and its parameters
OPTIONS = frozenset({
    "expect", "accept", "strict", "budget", "schedules", "seed", "inputs", "deny", "for_all",
    "sass",
})  # fmt: skip
TRITON = "triton_check"
#: what the marker of that name takes
TRITON_OPTIONS = OPTIONS - {"inputs", "for_all", "sass"} | {"target", "strict_values"}
#: the property of a test's report that says what was launched
_LAUNCHED = "tilesim.launched"
#: the property with the functions of what was left out of a test as tensors have no values
_LEFT_OUT = "tilesim.left_out"
#: the property that says what a proof leans on
_LEANS = "tilesim.leans_on"
#: the property that says what the proof kernel answers
_RECHECKED = "tilesim.rechecked"
#: the plug-in that watches GPUs
_WATCH = "tilesim-watch"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The command line options."""
    group = parser.getgroup("tilesim", "checking kernels with tilesim")
    group.addoption(
        "--tilesim-strict", choices=("practice", "ptx"), default=None,
        help="strictness of all checks: ptx (the text as written) or practice (the default)",
    )  # fmt: skip
    group.addoption(
        "--tilesim-budget", type=int, default=None, metavar="N",
        help="warp instructions to execute at most when exploring all schedules of a kernel",
    )  # fmt: skip
    group.addoption(
        "--tilesim-deny", action="append", default=None, metavar="NAME",
        help="fail tests of kernels whose proof leans on NAME (U12, in-bounds, ...; any)",
    )  # fmt: skip
    group.addoption(
        "--tilesim-recheck", action="store_true",
        help="recheck each proof with the proof kernel, which shares no code with what finds them",
    )  # fmt: skip
    group.addoption(
        "--tilesim-sass", action="store_true",
        help="also compare the machine code that NVRTC makes of kernels with its PTX",
    )  # fmt: skip
    group.addoption(
        "--tilesim-strict-values", "--strict-values", action="store_true",
        help=f"fail tests with {TRITON} that compare or read numbers: tensors have none there",
    )  # fmt: skip
    group.addoption(
        "--tilesim-witness-dir", type=Path, default=None, metavar="DIR",
        help="write the failing schedule of every failed check into this folder",
    )  # fmt: skip
    group.addoption(
        "--tilesim-watch", type=_seconds, default=None, metavar="SECONDS",
        help="dump the GPU when a test takes longer, and report why it hangs; the session ends",
    )  # fmt: skip


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e8:
        raise ValueError(text)
    return seconds


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Watches tests on GPUs: the driver has to be told before anything starts CUDA."""
    _watch_from_now_on(early_config, early_config.known_args_namespace)


def _watch_from_now_on(config: pytest.Config, options: Any) -> None:
    if options.tilesim_watch is not None and not config.pluginmanager.hasplugin(_WATCH):
        config.pluginmanager.register(GpuWatch(options.tilesim_watch), _WATCH)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    # where plug-ins are named after the first files are loaded
    _watch_from_now_on(config, config.option)
    config.addinivalue_line(
        "markers",
        f"{MARKER}(kernel, params={{}}, expect='', accept='', deny=(), strict, budget, schedules, "
        "seed, inputs, sass=False): check a kernel, for every combination of the parameters' "
        "values",
    )
    config.addinivalue_line(
        "markers",
        f"{TRITON}(target='sm_90a', expect='', accept='', deny=(), strict, budget, schedules, "
        "seed, strict_values=False): how the fixture of this name checks the Triton kernels that a "
        "test launches",
    )


# ------------------------------------------------------------------ the marker


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per combination of the marker's parameter values."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is None:
        return
    try:
        _subject(marker)
    except pytest.UsageError as error:  # of which collecting shows no more than its text
        where = f"{metafunc.definition.path.name}::{metafunc.definition.name}"
        raise pytest.Collector.CollectError(f"{where}: {error}") from None
    if "tilesim_report" not in metafunc.fixturenames:
        metafunc.fixturenames.append("tilesim_report")
    chosen = list(_combinations(marker.kwargs.get("params", {})))
    if chosen != [{}]:
        ids = ["-".join(f"{name}={_shown(value)}" for name, value in c.items()) for c in chosen]
        metafunc.parametrize("tilesim_report", chosen, ids=ids, indirect=True)


def _subject(marker: pytest.Mark) -> Kernel | Program:
    """What the marker checks; a `pytest.UsageError` if it is misused."""
    from tilesim import Kernel, Program

    if len(marker.args) != 1 or not isinstance(marker.args[0], Kernel | Program):
        raise pytest.UsageError(f"@pytest.mark.{MARKER} takes one kernel or program")
    unknown = sorted(set(marker.kwargs) - OPTIONS - {"params"})
    if unknown:
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER} has no option {', '.join(unknown)}; it has "
            f"{', '.join(sorted(OPTIONS))}, and kernel parameters go into params={{...}}"
        )
    params = marker.kwargs.get("params", {})
    if not isinstance(params, Mapping):
        raise pytest.UsageError(f"params={params!r} is no dict of values by parameter")
    subject: Kernel | Program = marker.args[0]
    if params and isinstance(subject, Program):
        raise pytest.UsageError(f"{subject.name} is a finished program, it has no parameters")
    return subject


def _shown(value: object) -> str:
    """A value in the name of a test, which is the same in every process (pytest-xdist)."""
    text = str(value)
    return getattr(value, "__name__", type(value).__name__) if " at 0x" in text else text


def _combinations(params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every choice of one value per parameter; a single value stands for a list of one."""
    values = [v if isinstance(v, list | tuple | range) else [v] for v in params.values()]
    for choice in product(*values):
        yield dict(zip(params, choice, strict=True))


@pytest.fixture
def tilesim_report(request: pytest.FixtureRequest) -> None:
    """The `Report` of the marker's check, put in place just before the body runs."""
    if request.node.get_closest_marker(MARKER) is None:
        pytest.fail(f"tilesim_report needs @pytest.mark.{MARKER} on the test", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Checks the kernel of a marked test before its body: in the call, so that it can fail."""
    marker = pyfuncitem.get_closest_marker(MARKER)
    if marker is None:
        return
    spec = getattr(pyfuncitem, "callspec", None)
    params = spec.params.get("tilesim_report", {}) if spec is not None else {}
    options = {name: value for name, value in marker.kwargs.items() if name != "params"}
    report = Checker(pyfuncitem)(_subject(marker), **{"params": params, **options})
    if "tilesim_report" in pyfuncitem.funcargs:
        pyfuncitem.funcargs["tilesim_report"] = report


# ------------------------------------------------------------------ hangs on GPUs


class GpuWatch:
    """Tests that take longer than so many seconds on a GPU are dumped (``--tilesim-watch``)."""

    def __init__(self, seconds: float) -> None:
        from tilesim.autopsy.guard import Guard

        self._stderr: int | None = None
        self._told: set[str] = set()
        self._guard = Guard(seconds, self._say)

    def _say(self, text: str) -> None:
        """Prints past what captures output, which a hung test keeps."""
        line = f"\ntilesim: {text}\n".encode(errors="backslashreplace")
        os.write(2 if self._stderr is None else self._stderr, line)

    def pytest_configure(self) -> None:
        """Output is not captured at this moment."""
        self._stderr = os.dup(2)
        for note in self._guard.notes:
            self._say(note)

    def pytest_unconfigure(self) -> None:
        """Variables are as before."""
        self._guard.close()
        if self._stderr is not None:
            os.close(self._stderr)
            self._stderr = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Watches a test with its fixtures."""
        self._guard.begin(item.nodeid)
        try:
            return (yield)
        finally:
            self._guard.end()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """A test that was dumped has failed, and is the last: the process has lost its context."""
        report = yield
        text = self._guard.report_of(item.nodeid)
        if text and item.nodeid not in self._told:
            self._told.add(item.nodeid)
            if report.outcome != "failed":
                report.outcome, report.longrepr = "failed", text
            report.sections.append(("tilesim", text))
            item.session.shouldfail = f"the GPU was dumped in {item.nodeid}"
        return report


# ------------------------------------------------------------------ Triton


@pytest.fixture
def triton_check(request: pytest.FixtureRequest) -> Checks:
    """Launching a Triton kernel in the test checks it; nothing is run, no GPU is needed.

    The test fails at a launch that is not proved (of an autotuned kernel: when all configurations
    are checked), and if it launches nothing. ``triton_check.reports`` has launches and reports.
    """
    testing = pytest.importorskip(
        "tilesim.triton.testing", reason="needs tilesim[triton]", exc_type=ImportError
    )
    marker = request.node.get_closest_marker(TRITON)
    options = dict(marker.kwargs) if marker is not None else {}
    unknown = sorted(set(options) - TRITON_OPTIONS)
    if unknown or (marker is not None and marker.args):
        raise pytest.UsageError(
            f"@pytest.mark.{TRITON} takes {', '.join(sorted(TRITON_OPTIONS))}, not "
            f"{', '.join(unknown) or 'positional arguments'}"
        )
    require(options.get("expect", ""), options.get("accept", ""))
    if request.config.getoption("tilesim_strict_values"):
        options["strict_values"] = True
    found: Checks = testing.Checks(_fail, **options | chosen(request.config))
    return found


def _fail(text: str) -> None:
    __tracebackhide__ = True
    pytest.fail(text, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Launches are checked during the call, so that the test fails there."""
    checks: Checks | None = getattr(item, "funcargs", {}).get(TRITON)
    if checks is None:
        yield
        return
    try:
        with checks.active():
            yield
        checks.finish()
    finally:
        item.user_properties.append((_LAUNCHED, checks.verdicts))
        if checks.left_out:
            functions = " ".join(one.function for one in checks.left_out)
            item.user_properties.append((_LEFT_OUT, functions))
        item.add_report_section("call", "tilesim", checks.summary)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many launches of Triton kernels were checked, and which proofs are conditional."""
    told = [
        pair
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for pair in report.user_properties
    ]
    leaning = Counter(given for name, text in told if name == _LEANS for given in text.split())
    if leaning:
        proofs = sum(name == _LEANS for name, _ in told)
        names = ", ".join(f"{given} ({n})" for given, n in sorted(leaning.items()))
        terminalreporter.section("conditional proofs of tilesim")
        terminalreporter.write_line(f"{proofs} proved only if: {names}; tilesim check says more")
    answers = Counter(text for name, text in told if name == _RECHECKED)
    if answers:
        terminalreporter.section("proofs rechecked by tilesim")
        counts = ", ".join(f"{n} {answer}" for answer, n in sorted(answers.items()))
        terminalreporter.write_line(counts)
    said = [text for name, text in told if name == _LAUNCHED]
    if said:
        terminalreporter.section("Triton kernels checked by tilesim")
        terminalreporter.write_line(launches(said))
    _tell_left_out(terminalreporter)


def _tell_left_out(terminalreporter: Any) -> None:
    """What each test has not done as tensors have no values, and all of them."""
    tests = [
        (report.nodeid, text.split())
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in report.user_properties
        if name == _LEFT_OUT
    ]
    if not tests:
        return
    from tilesim.recording.left_out import counted

    terminalreporter.section("left out by tilesim")
    for test, functions in tests:
        terminalreporter.write_line(f"{test}: {counted(functions)}")
    total = counted(function for _, functions in tests for function in functions)
    many = f"{total}, in {len(tests)} {'test' if len(tests) == 1 else 'tests'}"
    terminalreporter.write_line(
        f"{many}: launches are checked, and not run (--strict-values fails tests that need numbers)"
    )


def launches(said: Iterable[str]) -> str:
    """``5 launches: 4 proved, 1 failed``, of texts like ``2 proved, 1 failed``."""
    counts: Counter[str] = Counter()
    for part in ", ".join(filter(None, said)).split(", "):
        number, _, verdict = part.partition(" ")
        if verdict:
            counts[verdict] += int(number)
    total = counts.total()
    parts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    return f"{total} {'launch' if total == 1 else 'launches'}: {parts or 'none'}"


# ------------------------------------------------------------------ the fixture


@pytest.fixture
def tilesim_check(request: pytest.FixtureRequest) -> Checker:
    """``tilesim_check(kernel_or_program, ...)`` fails the test if the check finds something."""
    return Checker(request.node)


@dataclass(frozen=True)
class Checker:
    """Checks kernels on behalf of a test."""

    node: pytest.Item

    def __call__(
        self,
        subject: Kernel | Program,
        *,
        params: Mapping[str, Any] | None = None,
        expect: str = "",
        accept: str = "",
        **options: Any,
    ) -> Report | None:
        """Checks ``subject`` and returns the report (None if the verifier rejects, as expected).

        Args:
            params: parameters of the kernel.
            expect: the rule that must be found; the test fails if it is not.
            accept: ``"bounded"`` passes kernels that failed on no schedule tried.
            options: ``strict``, ``budget``, ``schedules``, ``seed``, ``inputs``, ``for_all`` of
                `tilesim.check`; ``deny``, names of what a proof must not lean on; ``sass``: also
                compare the machine code that NVRTC makes of it. The command line's come first.
        """
        __tracebackhide__ = True
        from tilesim import Kernel, Program
        from tilesim.errors import InvalidProgram

        require(expect, accept)
        if not isinstance(subject, Kernel | Program):
            raise pytest.UsageError(f"tilesim_check takes a kernel or a program, not {subject!r}")
        unknown = sorted(set(options) - OPTIONS)
        if unknown:
            raise pytest.UsageError(
                f"the check has no option {', '.join(unknown)}; it has {', '.join(sorted(OPTIONS))}"
            )
        name = _name(subject, params or {})
        options |= chosen(self.node.config)
        against = _denied(options.pop("deny", ()))
        sass = options.pop("sass", False) or self.node.config.getoption("tilesim_sass")
        if sass and options.get("for_all"):
            raise pytest.UsageError("sass compares the machine code of one program: no for_all")
        try:
            program, report = self._check(subject, dict(params or {}), options)
        except InvalidProgram as error:
            self._rejected(name, error, expect)
            return None
        report, code = _with_machine_code(name, program, report) if sass else (report, None)
        witness = self._record(report, code)
        leaning = against(report)
        text = _text(name, program, report, witness, leaning, code)
        if expect:
            if expect not in report.rules:
                pytest.fail(f"{name}: expected {expect}, but the check says\n{text}", pytrace=False)
        elif leaning or _is_open(report, accept):
            pytest.fail(f"{_hint(report)}{text}", pytrace=False)
        return report

    def _check(
        self, subject: Kernel | Program, params: dict[str, Any], options: dict[str, Any]
    ) -> tuple[Program, Report]:
        from tilesim import Kernel
        from tilesim.checker import check

        program = subject.build(**params) if isinstance(subject, Kernel) else subject
        if "inputs" not in options and isinstance(subject, Kernel) and subject.inputs is not None:
            options["inputs"] = _own_inputs(subject, params, options.get("seed", 0))
        if options.get("for_all") and isinstance(subject, Kernel):
            return program, check(subject, params=params, **options)
        recheck = self.node.config.getoption("tilesim_recheck")
        return program, check(program, **options, certificate=recheck)

    def _rejected(self, name: str, error: InvalidProgram, expect: str) -> None:
        rules = [d.rule for d in error.diagnostics]
        self.node.user_properties += [
            ("tilesim.verdict", "rejected"), ("tilesim.rules", " ".join(dict.fromkeys(rules))),
        ]  # fmt: skip
        if not expect or expect not in rules:
            pytest.fail(f"{name} is rejected by the verifier:\n{error}", pytrace=False)

    def _record(self, report: Report, code: MachineCode | None) -> Path | None:
        """Puts the verdict into the test's properties (junit) and the witness into a file."""
        properties = {
            "verdict": report.overall,
            "said": "" if report.for_all is None else report.said,
            "covers": report.covers,
            "schedules": str(report.stats.schedules),
            "rules": " ".join(dict.fromkeys(f.rule for f in report.findings)),
            "leans_on": " ".join(report.conditions),
            "rechecked": "" if report.rechecked is None else report.rechecked.verdict,
            "machine_code": "" if code is None else code.kind,
        }
        path = None
        folder: Path | None = self.node.config.getoption("tilesim_witness_dir")
        if folder is not None and report.witness is not None:
            stem = re.sub(r"[^A-Za-z0-9.=-]+", "_", self.node.nodeid).strip("_")
            path = folder / f"{stem}.json"
            folder.mkdir(parents=True, exist_ok=True)
            from tilesim.files import write_whole

            write_whole(path, json.dumps(report.witness, indent=2) + "\n")
            properties["witness"] = str(path)
        self.node.user_properties += [
            (f"tilesim.{name}", value) for name, value in properties.items() if value
        ]
        return path


def _is_open(report: Report, accept: str) -> bool:
    """Whether a report leaves open what is asked."""
    return report.overall not in ("proved", "exhausted", accept)


def require(expect: str, accept: str) -> None:
    """A `pytest.UsageError` if these are nothing that a check could say."""
    __tracebackhide__ = True
    from tilesim.findings.finding import RULES

    if expect and expect not in RULES:
        raise pytest.UsageError(f"expect={expect!r} is not a rule; see tilesim explain")
    if accept not in ("", "bounded"):
        raise pytest.UsageError(f"accept={accept!r} is not 'bounded'")


def chosen(config: pytest.Config) -> dict[str, Any]:
    """The options of checks that the command line sets, whatever the tests say."""
    given = {name: config.getoption(f"tilesim_{name}") for name in ("strict", "budget", "deny")}
    return {name: value for name, value in given.items() if value is not None}


def _own_inputs(kernel: Kernel, params: Mapping[str, Any], seed: int) -> Any:
    """The inputs the kernel supplies itself, because its control flow depends on them."""
    import numpy as np

    make: Callable[..., Any] | None = kernel.inputs
    assert make is not None
    return make(np.random.default_rng(seed), **{**kernel.params, **params})


def _name(subject: Kernel | Program, params: Mapping[str, Any]) -> str:
    inside = ",".join(f"{name}={value}" for name, value in params.items())
    return f"{subject.name}[{inside}]" if inside else subject.name


def _hint(report: Report) -> str:
    if report.overall != "bounded":
        return ""
    return "not proved; accept='bounded' passes it, a larger budget may prove it\n"


def _denied(names: str | Iterable[str]) -> Callable[[Report], tuple[Leaning, ...]]:
    """What of the leanings of a report has one of these names; a `pytest.UsageError` for a name
    that nothing has."""
    from tilesim.checker.assumptions import denied, require_names
    from tilesim.errors import UsageError

    try:
        known = require_names(names)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    return lambda report: denied(report.leanings, known)


def _with_machine_code(
    name: str, program: Program, report: Report
) -> tuple[Report, MachineCode | None]:
    """The report with what the machine code says that NVRTC makes of the program."""
    from tilesim.cli.sass import Sass
    from tilesim.limits import Timer
    from tilesim.loader.target import Target

    return Sass().of(Target(name, "", program=program), program, report, Timer(None))


def _text(
    name: str, program: Program, report: Report, witness: Path | None,
    leaning: tuple[Leaning, ...], code: MachineCode | None,
) -> str:  # fmt: skip
    """The report as ``tilesim check`` prints it."""
    from tilesim.report.result import Checked
    from tilesim.report.text import result_text

    checked = Checked(name, program.target.name, report, denied=leaning, machine_code=code)
    text = result_text(checked)
    if witness is not None:
        text += f"  witness   {witness}\n"
    return text
