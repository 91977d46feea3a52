"""The same kernel and inputs in the simulator and on the GPU: do they agree?

``tilesim crosscheck`` (also ``python -m tilesim.gpu.crosscheck``) runs the gallery. A kernel that
completes in the simulator must complete on the GPU, also under random delays, with equal outputs:
bit for bit, unless it contains instructions whose rounding is not prescribed (`INEXACT`), then
within `ULPS` units of the output type. A kernel that deadlocks in the simulator must hang on the
GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.taint import tensors_read, tensors_written
from tilesim.arith.types import DType, numpy_dtype
from tilesim.checker import check
from tilesim.findings.finding import Finding
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
from tilesim.gpu.watchdog import Execution, Executor, Hang
from tilesim.ir import effects as fx
from tilesim.ir.program import Program, instructions
from tilesim.records import dataclass, field
from tilesim.sim.machine.simulate import Run, simulate

Arrays = dict[str, NDArray[Any]]

#: elementwise functions whose last bits differ between implementations
INEXACT = frozenset({"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "div"})
#: bound for kernels with such functions, in units in the last place of the output type
ULPS = 64
#: of a tensor's largest value: sums below that have cancelled, and their units are those of it
CANCELLED = 1 / 64
#: what outputs hold before a run: representable in every element type
POISON = 112
#: rules of a kernel that does not end; under any other finding a run on hardware proves nothing
_STUCK = frozenset({"deadlock", "register-pool"})
#: schedules of the check that decides whether a kernel may run
_SCHEDULES = 16


@dataclass(frozen=True)
class Result:
    """One comparison.

    ``result`` is ``equal``, ``within bound``, ``same hang``, or, when the two disagree,
    ``differs``, ``hangs`` (on the GPU only), ``does not hang``, ``error``; ``skipped`` otherwise.
    ``max_error`` is the largest absolute difference, ``launches`` counts those that ended.
    """

    kernel: str
    arch: str
    result: str
    simulator: str
    gpu: str = ""
    max_error: float | None = None
    launches: int = 0
    detail: str = ""
    hang: Hang | None = field(default=None, repr=False)
    device: str = ""

    @property
    def agrees(self) -> bool:
        """False if simulator and GPU contradict each other."""
        return self.result in ("equal", "within bound", "same hang", "skipped")

    def json(self) -> dict[str, Any]:
        """This result as a JSON object."""
        return {
            "kernel": self.kernel, "arch": self.arch, "result": self.result,
            "simulator": self.simulator, "gpu": self.gpu, "max_error": self.max_error,
            "launches": self.launches, "detail": self.detail,
            "hang": None if self.hang is None else str(self.hang),
        }  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How often and how long: ``perturb`` launches with random delays beside the plain one."""

    perturb: int = 4
    seed: int = 0
    budget: float = 0.25
    cache: Path | None = None


# ---------------------------------------------------------------------- inputs


def random_inputs(program: Program, rng: np.random.Generator, given: Mapping[str, Any]) -> Arrays:
    """Contents of every tensor before the run.

    Inputs are small integers, so that products and sums of them are exact in every float type;
    tensors that are only written hold `POISON`, those that are read and written zeros.
    """
    read, written = _uses(program)
    arrays: Arrays = {}
    for tensor in program.tensors:
        kind = numpy_dtype(tensor.dtype)
        if tensor.name in given:
            arrays[tensor.name] = np.asarray(given[tensor.name]).astype(kind)
        elif tensor.name not in written:
            low = 0 if tensor.dtype.kind in ("uint", "pred") else -3
            high = 2 if tensor.dtype.kind == "pred" else 4
            arrays[tensor.name] = rng.integers(low, high, tensor.shape).astype(kind)
        else:
            value = 0 if tensor.name in read else POISON
            arrays[tensor.name] = np.full(tensor.shape, value).astype(kind)
    return arrays


def _uses(program: Program) -> tuple[set[str], set[str]]:
    """Names of the tensors that are read, and of those that are written."""
    read: set[str] = set()
    written: set[str] = set()
    for effect in (effect for op in instructions(program) for effect in op.effects()):
        read.update(tensors_read(effect))
        written.update(changed := tensors_written(effect))
        if getattr(effect, "combine", None) is not None:
            read.update(changed)
    return read, written


# ---------------------------------------------------------------------- comparison


def inexact(program: Program) -> bool:
    """True if the kernel uses functions whose last bits are not prescribed."""
    return any(getattr(op, "op", None) in INEXACT for op in instructions(program))


def difference(
    dtype: DType, expected: NDArray[Any], found: NDArray[Any]
) -> tuple[float, float, bool]:
    """(largest absolute difference, the same in units in the last place, equal bit for bit).

    Units are those of the expected element, or of `CANCELLED` times the largest one if it is below.
    """
    same = expected.tobytes() == found.tobytes()
    if same or expected.size == 0:
        return 0.0, 0.0, same
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    error = np.where(np.isnan(error), np.inf, error)
    mantissa = {"f16": 10, "bf16": 7, "e4m3": 3, "e5m2": 2, "f64": 52}.get(dtype.name, 23)
    size = np.abs(np.where(np.isfinite(a), a, 0.0))
    floor = max(float(size.max()) * CANCELLED, float(np.finfo(np.float32).tiny))
    exponent = np.frexp(np.maximum(size, floor))[1] - 1
    unit = np.ldexp(1.0, exponent - mantissa) if dtype.kind == "float" else np.ones(a.shape)
    return float(error.max()), float((error / unit).max()), False


def _compare(program: Program, expected: Arrays, runs: Sequence[Arrays]) -> tuple[str, float, str]:
    """``equal``, ``within bound`` or ``differs``; the largest error; where it is."""
    worst, result, detail = 0.0, "equal", ""
    opaque = _tensor_maps(program)
    for number, run in enumerate(runs):
        for tensor in (t for t in program.tensors if t.name not in opaque):
            error, units, same = difference(tensor.dtype, expected[tensor.name], run[tensor.name])
            worst = max(worst, error)
            if same or result == "differs":
                continue
            fine = inexact(program) and units <= ULPS
            result = "within bound" if fine else "differs"
            wrong = int((expected[tensor.name] != run[tensor.name]).sum())
            detail = f"run {number}: {wrong} of {run[tensor.name].size} elements of {tensor.name}"
            if units:
                detail += f", {units:.3g} ulp"
    return result, worst, detail


def _tensor_maps(program: Program) -> set[str]:
    """Tensors that hold tensor maps, whose layout in hardware is not known."""
    effects = [e for op in instructions(program) for e in op.effects()]
    return {e.view.tensor.name for e in effects if isinstance(e, fx.Reads | fx.AcquiresMap)
            and (isinstance(e, fx.AcquiresMap) or e.proxy == "tensormap")}  # fmt: skip


def _deadlocks(findings: Sequence[Finding]) -> list[Finding]:
    return [f for f in findings if f.rule in _STUCK]


class Crosscheck:
    """Compares programs, all of them with one worker process for the GPU."""

    def __init__(self, executor: Executor, options: Options | None = None) -> None:
        self._executor = executor
        self._options = options or Options()
        self.rng = np.random.default_rng(self._options.seed)

    def check(
        self,
        program: Program,
        inputs: Mapping[str, Any] | None = None,
        *,
        correct: bool | None = None,
    ) -> Result:
        """Runs ``program`` on both and compares; ``inputs`` as far as they must not be random.

        ``correct`` says what `tilesim.check` is known to find (something or nothing), which saves
        asking it.
        """
        arch = program.target.name
        contents = random_inputs(program, self.rng, inputs or {})
        run = simulate(program, contents)
        findings = run.findings
        if not findings and correct is None:
            findings = check(program, inputs=contents, schedules=_SCHEDULES).findings
        summary = ", ".join(dict.fromkeys(f.rule for f in findings)) or "completes"
        stuck = _deadlocks(run.findings)
        if {f.rule for f in findings} - _STUCK:
            why = f"undefined behaviour on hardware ({summary})"
            return Result(program.name, arch, "skipped", summary, detail=why)
        if (findings or correct is False) and not stuck:
            why = "what goes wrong depends on the schedule"
            return Result(program.name, arch, "skipped", summary, detail=why)
        executions = self._execute(program, contents, plain=not stuck)
        if stuck:
            return self._same_hang(program, summary, stuck, executions[-1])
        return self._same_outputs(program, summary, run, executions)

    def _execute(self, program: Program, contents: Arrays, *, plain: bool) -> list[Execution]:
        """The launch as users run it, if the kernel is expected to end, and those under watch."""
        options, results = self._options, []
        if plain:
            binary = compile_cubin(emit(program), directory=options.cache)
            results.append(self._executor.execute(binary, contents, budget=options.budget))
            if results[-1].status != "done":
                # once more under the watchdog, which says where it hangs
                options = Options(0, options.seed, options.budget, options.cache)
        perturb = plain and options.perturb > 0
        watched = emit(program, watchdog=True, perturb=perturb)
        binary = compile_cubin(watched, directory=options.cache)
        seeds = [int(s) for s in self.rng.integers(1, 1 << 31, options.perturb if perturb else 1)]
        results.append(self._executor.execute(binary, contents, seeds=seeds, budget=options.budget))
        return results

    def _same_outputs(
        self, program: Program, summary: str, run: Run, executions: list[Execution]
    ) -> Result:
        arch = program.target.name
        runs = [r for e in executions for r in e.outputs]
        bad = next((e for e in reversed(executions) if e.status != "done"), None)
        device = _device(executions)
        if bad is not None:
            result = "hangs" if bad.status == "hang" else "error"
            return Result(
                program.name, arch, result, summary, bad.status, None, len(runs), bad.detail,
                bad.hang, device,
            )  # fmt: skip
        result, worst, detail = _compare(program, run.outputs, runs)
        return Result(
            program.name, arch, result, summary, "completes", worst, len(runs), detail, None,
            device,
        )  # fmt: skip

    def _same_hang(
        self, program: Program, summary: str, stuck: list[Finding], execution: Execution
    ) -> Result:
        arch, device = program.target.name, _device([execution])
        if execution.status == "error":
            return Result(
                program.name, arch, "error", summary, "error", None, 0, execution.detail, None,
                device,
            )  # fmt: skip
        if execution.hang is None:
            return Result(
                program.name, arch, "does not hang", summary, "completes", None, 1, "", None, device
            )
        expected = {(p.cta, str(p.loc)) for f in stuck for p in f.participants}
        detail = "same places"
        if expected != execution.hang.places:
            text = [", ".join(sorted(loc for _, loc in places)) or "none"
                    for places in (expected, execution.hang.places)]  # fmt: skip
            detail = f"simulator waits at {text[0]}; GPU at {text[1]}"
        return Result(
            program.name, arch, "same hang", summary, "hang", None, 0, detail, execution.hang,
            device,
        )  # fmt: skip


def _device(executions: Sequence[Execution]) -> str:
    info = next((e.device for e in executions if e.device is not None), None)
    return "" if info is None else f"{info.name}, driver {info.driver}"


def crosscheck(
    program: Program, inputs: Mapping[str, Any] | None = None, options: Options | None = None
) -> Result:
    """Compares one program in the simulator and on the GPU.

    Raises:
        DeviceError: there is no driver or no GPU.
        MissingExtra: the ``compile`` extra is not installed.
        InvalidProgram, EmitError: the program cannot run.
    """
    with Executor() as executor:
        return Crosscheck(executor, options).check(program, inputs)


if __name__ == "__main__":
    from tilesim.cli import main

    main(["crosscheck", *sys.argv[1:]], prog_name="tilesim")
