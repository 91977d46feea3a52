"""What commands do with a GPU: `Gallery` is ``crosscheck``, `run_gpu` is ``run --backend gpu``.

`write` emits to a file by suffix.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Literal

import numpy as np

from tilesim.cli.options import say, write_file
from tilesim.errors import InvalidProgram, TilesimError, UsageError
from tilesim.files import write_whole
from tilesim.gpu.compile import compile_cubin, compile_ptx, versions
from tilesim.gpu.crosscheck import Arrays, Crosscheck, Options, Result
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.driver import probe
from tilesim.gpu.emit import emit
from tilesim.gpu.watchdog import Executor
from tilesim.ir.program import Program
from tilesim.kernels.registry import Case, cases
from tilesim.loader import Target
from tilesim.ptx.description import dumps
from tilesim.records import dataclass, replace
from tilesim.report.compare import compare

_COLUMNS = ("kernel", "arch", "simulator", "GPU", "result", "max error", "launches", "remark")


def write(program: Program, path: Path, inputs: Arrays | None = None) -> None:
    """Writes CUDA C++ (``.cu``), PTX (``.ptx``) or machine code (``.cubin``), by suffix.

    Beside PTX goes the description of its launch (``.json``), with those of ``inputs`` that steer
    the program.

    Raises:
        UsageError: the suffix is another one.
    """
    source = emit(program)
    match path.suffix:
        case ".cu":
            write_whole(path, source.text)
        case ".ptx":
            write_whole(path, compile_ptx(source))
            write_whole(path.with_suffix(".json"), dumps(describe(source, inputs)))
        case ".cubin":
            write_whole(path, compile_cubin(source).cubin)
        case suffix:
            raise UsageError(f"cannot write {suffix or 'no suffix'}: use .cu, .ptx or .cubin")


def run_gpu(
    targets: Sequence[Target],
    *,
    backend: Literal["gpu", "both"],
    seed: int,
    perturb: int | None = None,
    budget: float = 1.0,
) -> int:
    """``tilesim run --backend gpu`` or ``both``: prints the results, returns the exit code.

    ``gpu`` compares with the kernel's reference, ``both`` with the simulator: 0 equal (or nothing
    to compare with), 1 different or hung, 2 it could not run. ``perturb`` launches more have random
    delays; by default none for ``gpu``, and as many as `Options` says for ``both``.
    """
    options = Options(seed=seed, budget=budget)
    if perturb is not None:
        options = replace(options, perturb=perturb)
    elif backend == "gpu":
        options = replace(options, perturb=0)
    run = _run_both if backend == "both" else _run_alone
    codes = []
    with Executor() as executor:
        for target in targets:
            try:
                codes.append(run(executor, target, options))
            except TilesimError as error:
                say(f"error: {target.id}: {error}", err=True)
                codes.append(2)
    return max(codes, default=0)


def _run_both(executor: Executor, target: Target, options: Options) -> int:
    program = target.build()
    checker = Crosscheck(executor, options)
    result = checker.check(program, target.inputs(program, options.seed))
    launches = f" in {result.launches} launches" if result.launches > 1 else ""
    say(f"{target.id}: {result.result}{launches} {result.detail}".rstrip())
    if result.hang is not None:
        say(str(result.hang))
    return 0 if result.agrees else 1


def _run_alone(executor: Executor, target: Target, options: Options) -> int:
    """One plain launch and those with random delays; every one must be right."""
    program = target.build()
    inputs = target.inputs(program, options.seed)
    binary = compile_cubin(emit(program, watchdog=True))
    first = execution = executor.execute(binary, inputs, budget=options.budget)
    runs = list(first.outputs)
    if first.status == "done" and options.perturb:
        binary = compile_cubin(emit(program, watchdog=True, perturb=True))
        seeds = delay_seeds(options)
        execution = executor.execute(binary, inputs, seeds=seeds, budget=options.budget)
        runs += execution.outputs
    if execution.status != "done":
        say(f"{target.id}: {execution.hang or execution.detail}{_which(runs)}")
        return 1
    expected = target.expected(inputs)
    if expected is None:
        say(f"{target.id}: ran in {first.seconds[0]:.3g} s, no reference to compare with")
        return _same_each_time(target, runs)
    return _like_the_reference(target, runs, expected)


def delay_seeds(options: Options) -> tuple[int, ...]:
    """A seed of random delays for every launch that has them."""
    rng = np.random.default_rng(options.seed)
    return tuple(int(s) for s in rng.integers(1, 1 << 31, options.perturb))


def _which(runs: Sequence[Arrays]) -> str:
    """Which launch failed, if delays may have been the cause."""
    return f"\n   in launch {len(runs)} with random delays" if runs else ""


def _like_the_reference(target: Target, runs: Sequence[Arrays], expected: Arrays) -> int:
    """Compares every launch with the reference; prints the first, and the first that is wrong."""
    compared = [compare(run, expected) for run in runs]
    bad = next((n for n, found in enumerate(compared) if not all(c.equal for c in found)), None)
    for comparison in compared[bad or 0]:
        say(f"{target.id}: {comparison}{_delayed(bad or 0, len(runs))}")
    return 0 if bad is None else 1


def _same_each_time(target: Target, runs: Sequence[Arrays]) -> int:
    """Compares every launch with the first one."""
    for number, run in enumerate(runs[1:], 1):
        wrong = [c for c in compare(run, runs[0]) if not c.equal]
        for comparison in wrong:
            say(
                f"{target.id}: {comparison}, in launch {number} with random delays; the reference "
                "is the launch without"
            )
        if wrong:
            return 1
    return 0


def _delayed(number: int, launches: int) -> str:
    if number:
        return f", in launch {number} with random delays"
    return f", in {launches} launches, {launches - 1} with random delays" if launches > 1 else ""


def check_case(checker: Crosscheck, case: Case) -> Result:
    """Compares one row of the gallery; what cannot run is ``skipped`` with the reason."""
    try:
        program = case.build()
        inputs = None
        if case.kernel.inputs is not None:
            inputs = case.kernel.inputs(checker.rng, **{**case.kernel.params, **case.params})
        result = checker.check(program, inputs, correct=not case.fails)
    except InvalidProgram as error:
        rules = ", ".join(dict.fromkeys(d.rule for d in error.diagnostics))
        return Result(case.target, case.kernel.target, "skipped", "rejected", detail=rules)
    except TilesimError as error:
        first = str(error).split("\n")[0]
        return Result(case.target, case.kernel.target, "error", "", detail=first)
    return replace(result, kernel=case.target)


def precompile(chosen: Sequence[Case], cache: Path, jobs: int) -> int:
    """Fills the compile cache with what a run needs; returns how many rows do not compile."""
    failures = 0
    versions()  # loads the compiler before the threads start

    def compile_case(case: Case) -> str | None:
        try:
            program = case.build()
            for watched in (False, True):
                compile_cubin(emit(program, watchdog=watched, perturb=watched), directory=cache)
            compile_cubin(emit(program, watchdog=True), directory=cache)
        except InvalidProgram:
            return None
        except TilesimError as error:
            return f"{case.target}: {error}"
        return None

    with ThreadPoolExecutor(jobs) as pool:
        for message in pool.map(compile_case, chosen):
            if message is not None:
                failures += 1
                say(message, err=True)
    return failures


def markdown(results: Sequence[Result]) -> str:
    """The table, under a line with versions, GPU and date."""
    device = next((r.device for r in results if r.device), "no GPU")
    agree = sum(r.agrees and r.result != "skipped" for r in results)
    skipped = sum(r.result == "skipped" for r in results)
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    lines = [
        f"{device}; {used}; {date.today().isoformat()}. "
        f"{agree} agree, {len(results) - agree - skipped} disagree, {skipped} not run.",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        f"|{' --- |' * len(_COLUMNS)}",
    ]
    for r in results:
        error = "" if r.max_error is None else f"{r.max_error:.3g}"
        cells = (r.kernel, r.arch, r.simulator, r.gpu, r.result, error, str(r.launches), r.detail)
        lines.append(f"| {' | '.join(c.replace('|', '/') for c in cells)} |")
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Gallery:
    """``tilesim crosscheck``: rows of the gallery on both backends, as a table.

    ``family`` and ``kernel`` (part of a name) choose rows, at most ``limit``. ``perturb`` launches
    have random delays from ``seed`` (None: another one each time); a wait of more than ``budget``
    seconds is a hang. ``compile_only`` fills the folder ``cache`` with ``jobs`` threads.
    """

    family: str | None
    kernel: str
    limit: int | None
    perturb: int
    budget: float
    seed: int | None
    cache: Path | None
    compile_only: bool
    jobs: int
    markdown: Path | None
    json: Path | None

    def run(self) -> int:
        """Exit code: 0 if everything that ran agrees, 1 if not.

        Raises:
            TilesimError: there are no such rows, nothing can run, or a file cannot be written.
        """
        begun = time.perf_counter()
        chosen = self._chosen()
        try:
            if self.compile_only:
                return int(precompile(chosen, self.cache or Path(".cubins"), self.jobs) > 0)
            probe()
            settings = Options(self.perturb, self._seed(), self.budget, self.cache)
            results = self._compare(chosen, settings)
        except OSError as error:
            raise UsageError(f"cannot write {error.filename}: {error.strerror}") from error
        seconds = time.perf_counter() - begun
        say(f"{len(results)} rows in {seconds:.0f} s, seed {settings.seed}")
        return 0 if all(r.agrees for r in results) else 1

    def _seed(self) -> int:
        if self.seed is not None:
            return self.seed
        return int(np.random.SeedSequence().generate_state(1)[0])

    def _chosen(self) -> list[Case]:
        found = [c for c in cases(self.family) if not c.kernel.target.startswith("sm_1")]
        found = [c for c in found if self.kernel in c.target]
        if not found:
            raise UsageError(
                "there is no such row for a Hopper GPU in the gallery: python -m tilesim.kernels "
                "lists the rows"
            )
        return found[: self.limit]

    def _compare(self, chosen: Sequence[Case], settings: Options) -> list[Result]:
        """The rows one after another; the files are written after each, in case the time runs
        out."""
        results: list[Result] = []
        with Executor() as executor:
            checker = Crosscheck(executor, settings)
            for case in chosen:
                result = check_case(checker, case)
                results.append(result)
                mark = "ok  " if result.agrees else "FAIL"
                say(f"{mark} {result.kernel}: {result.result} {result.detail}")
                if result.hang is not None:
                    say(str(result.hang))
                self._save(results, settings)
        return results

    def _save(self, results: Sequence[Result], settings: Options) -> None:
        if self.markdown is not None:
            write_file(self.markdown, markdown(results))
        if self.json is not None:
            rows = [r.json() for r in results]
            document = {"schema": 1, "seed": settings.seed, "results": rows}
            write_file(self.json, json.dumps(document, indent=1))
