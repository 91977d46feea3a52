"""The worker process, the reports and the comparison, with the simulator in place of the GPU."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilesim import Builder, Program, UsageError, f32, s32
from tilesim import autopsy as autopsies
from tilesim.arith.types import bf16
from tilesim.autopsy.trigger import ENABLE, Limits
from tilesim.gpu import conform
from tilesim.gpu import crosscheck as crosscheck_module
from tilesim.gpu.compile import FILE, Binary, Resources
from tilesim.gpu.crosscheck import Crosscheck, Options, difference, random_inputs
from tilesim.gpu.emit import emit
from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.errors import DeviceError
from tilesim.gpu.trace import buffer
from tilesim.gpu.watchdog import Executor, in_source, pack, unpack
from tilesim.kernels.hopper.copy import tensor, vector
from tilesim.kernels.hopper.softmax import softmax
from tilesim.kernels.nvfuser.printed import only, printed

FAKE = Path(__file__).parent / "fake_gpu.py"
SCRIPT = f"import runpy; runpy.run_path({str(FAKE)!r}, run_name='__main__')"
NONE = Resources(0, 0, 0, 0, 0)


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(SCRIPT) as shared:
        yield shared


@pytest.fixture
def checker(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> Crosscheck:
    """A comparison that does not compile anything."""
    monkeypatch.setattr(crosscheck_module, "compile_cubin", _pretend)
    return Crosscheck(executor, Options(perturb=2))


def _pretend(source: Source, *, directory: object = None) -> Binary:
    return Binary(source, b"right", NONE)


def _stuck() -> Program:
    k = Builder("stuck", warps=2)
    out, bar = k.tensor("out", s32, (1,)), k.mbarriers("bar", 2)
    with k.one_thread():
        k.mbarrier.init(bar[1], 1)
    k.sync_threads()
    with k.role("consumer", 0), k.elected():
        k.mbarrier.wait(bar[1], 0)
        k.mem.store(out[0], 1)
    with k.role("late", 1):
        with k.elected():
            k.mbarrier.wait(bar[1], 0)
        k.mbarrier.arrive(bar[1])
    return k.finish()


def test_outputs_come_back_once_per_seed(executor: Executor) -> None:
    program = vector.build(n=1024, ctas=1)
    x = np.arange(1024, dtype=np.float32)
    binary = Binary(emit(program, perturb=True), b"", NONE)
    execution = executor.execute(binary, {"X": x}, seeds=(1, 2, 3))
    assert execution.status == "done"
    assert len(execution.outputs) == 3
    assert all((run["Y"] == x).all() for run in execution.outputs)
    assert execution.device is not None
    assert execution.device.arch == "sm_90"


def test_a_hang_is_reported_and_the_next_kernel_runs(executor: Executor) -> None:
    hung = executor.execute(Binary(emit(_stuck(), watchdog=True), b"", NONE), {})
    assert hung.status == "hang"
    text = str(hung.hang)
    assert "deadlock: stuck did not end" in text
    assert "consumer (warp 0) waits on bar[1] parity 0 at " in text
    assert "bar is released by late (mbarrier.arrive at " in text
    again = executor.execute(Binary(emit(vector.build()), b"", NONE), {})
    assert again.status == "done"


@pytest.fixture
def without_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of dumps say what is in the dump, which takes a tenth of the time."""
    monkeypatch.setattr(autopsies, "autopsy", partial(autopsies.autopsy, check=False))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary ones."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("without_check")
def test_a_hang_without_a_record_is_dumped(temporary: Path) -> None:
    with Executor(SCRIPT) as own:
        binary = Binary(emit(vector.build(), watchdog=True), b"hardware", NONE)
        hung = own.execute(binary, {}, timeout=0.1)
        assert not list(temporary.iterdir())
        assert own.execute(Binary(emit(vector.build()), b"", NONE), {}).status == "done"
    assert hung.status == "hang"
    assert hung.hang is not None
    head, *lines = str(hung.hang).splitlines()
    assert head.startswith("deadlock: vector did not end in 0.1 s on the GPU; no warp left a")
    assert " ring  grid 3, block 160, sm_90; 3 of 3 CTAs resident" in lines[0]
    assert not list(temporary.iterdir())


@pytest.mark.usefixtures("without_check")
def test_a_hang_in_hardware_barriers_is_dumped(executor: Executor) -> None:
    binary = Binary(emit(_stuck(), watchdog=True), b"hardware marked", NONE)
    hung = executor.execute(binary, {}, timeout=0.1)
    head, first, *lines = str(hung.hang).splitlines()
    assert head == "deadlock: stuck did not end in 0.1 s on the GPU"
    assert first.startswith("   CTA 0 warp 0 (warp 0) waits at named barrier 0 at ")
    assert " ring  grid 3, block 160, sm_90; 3 of 3 CTAs resident" in lines[0]


@pytest.mark.usefixtures("without_check")
def test_a_hang_of_a_recording_is_dumped(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pretend(source: Source) -> Binary:
        return Binary(source, b"hardware", NONE)

    monkeypatch.setattr(conform, "probe", lambda: None)
    monkeypatch.setattr(conform, "compile_cubin", pretend)
    monkeypatch.setattr(conform, "_SECONDS", 0.1)
    with pytest.raises(DeviceError, match=r"vector on the GPU: deadlock(.*\n)+ .* ring  grid 3, "):
        conform.record(vector.build(), {}, 1, executor=executor)


def test_a_kernel_whose_times_are_recorded_runs_without_what_dumps_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENABLE, raising=False)
    asked = list[bool]()
    start: Any = subprocess.Popen

    def started(*given: Any, env: dict[str, str], **named: Any) -> Any:
        asked.append(ENABLE in env)
        return start(*given, env=env, **named)

    monkeypatch.setattr(subprocess, "Popen", started)
    program = vector.build()
    plain = Binary(emit(program), b"", NONE)
    traced = Binary(emit(program, trace=True), b"", NONE)
    words = buffer(program, 1, 1000)
    with Executor(SCRIPT) as own:
        for _ in range(2):  # one worker for both
            assert own.execute(traced, {}, trace=words).status == "done"
        assert own.execute(plain, {}).status == "done"
        assert own.execute(plain, {}, dump=False).status == "done"
        assert own.execute(traced, {}, trace=words, dump=True).status == "done"
    assert asked == [False, True, False, True]


def test_lines_of_the_generated_text_are_told_as_those_of_the_kernel() -> None:
    source = emit(vector.build())
    line = next(n for n, loc in enumerate(source.lines, 1) if loc is not None)
    at = source.lines[line - 1]
    text = f"at {FILE}:{line}, my{FILE}:{line}, {FILE}:1"
    assert in_source(source, text) == f"at {at}, my{FILE}:{line}, {FILE}:1"


@pytest.mark.parametrize(
    ("cubin", "why"),
    [
        (b"hardware deaf", "1 dump did not come in 0 s, although the driver was asked"),
        (b"hardware cut", "the dump is damaged: "),
    ],
)
def test_without_a_dump_the_reason_is_said(cubin: bytes, why: str) -> None:
    limits = Limits(begin=0.1, stall=0.1, look=0.01, settle=0.01)
    with Executor(SCRIPT, limits) as own:
        binary = Binary(emit(vector.build(), watchdog=True), cubin, NONE)
        hung = own.execute(binary, {}, timeout=0.1)
    assert hung.status == "hang"
    assert hung.hang is not None
    head, line = str(hung.hang).splitlines()
    assert "no warp left a record" in head
    assert line.startswith("   no dump of it: ")
    assert why in line


def test_a_worker_that_dies_is_an_error_and_is_replaced(executor: Executor) -> None:
    binary = Binary(emit(vector.build()), b"dies", NONE)
    with pytest.raises(DeviceError, match="ended without answer, code 3"):
        executor.execute(binary, {})
    assert executor.execute(Binary(emit(vector.build()), b"", NONE), {}).status == "done"


def test_inputs_that_do_not_fit_are_refused(executor: Executor) -> None:
    binary = Binary(emit(vector.build()), b"", NONE)
    with pytest.raises(UsageError, match="has no tensor Z"):
        executor.execute(binary, {"Z": np.zeros(1)})
    with pytest.raises(UsageError, match=r"input X has shape \(1,\), not \(4096,\)"):
        executor.execute(binary, {"X": np.zeros(1)})


def test_equal_outputs_agree(checker: Crosscheck) -> None:
    result = checker.check(tensor.build())
    assert (result.result, result.max_error, result.launches) == ("equal", 0.0, 3)
    assert result.agrees


def test_a_different_bit_does_not(checker: Crosscheck, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(source: Source, *, directory: object = None) -> Binary:
        return Binary(source, b"wrong", NONE)

    monkeypatch.setattr(crosscheck_module, "compile_cubin", wrong)
    result = checker.check(tensor.build())
    assert result.result == "differs"
    assert "1 of 7200 elements of Y" in result.detail
    assert not result.agrees


def test_a_kernel_with_exponentials_has_a_bound(
    checker: Crosscheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(source: Source, *, directory: object = None) -> Binary:
        return Binary(source, b"wrong", NONE)

    monkeypatch.setattr(crosscheck_module, "compile_cubin", wrong)
    assert checker.check(softmax.build()).result == "within bound"


def test_a_deadlock_must_hang_in_the_same_places(checker: Crosscheck) -> None:
    result = checker.check(_stuck())
    assert (result.result, result.detail) == ("same hang", "same places")
    result = checker.check(printed.build(**only("dead_role")))
    assert result.result == "same hang"


def test_undefined_behaviour_is_not_run(checker: Crosscheck) -> None:
    k = Builder("racy", warps=2)
    out, word = k.tensor("out", s32, (1,)), k.shared("word", s32, (1,))
    with k.elected():
        k.mem.store(word[0], k.warp_id)
        k.mem.store(out[0], 1)
    result = checker.check(k.finish())
    assert result.result == "skipped"
    assert "race" in result.detail


def test_inputs_are_small_integers_and_outputs_are_poisoned() -> None:
    program = tensor.build()
    arrays = random_inputs(program, np.random.default_rng(0), {})
    assert set(np.unique(arrays["X"].astype(int))) == {-3, -2, -1, 0, 1, 2, 3}
    assert (arrays["Y"].astype(int) == crosscheck_module.POISON).all()


def test_differences_are_measured_in_units_of_the_type() -> None:
    a, b = np.array([1.0, 2.0], np.float32), np.array([1.0, 2.0 + 2**-22], np.float32)
    assert difference(f32, a, b) == (2**-22, 1.0, False)
    assert difference(bf16, a, b)[1] == 2**-16
    assert difference(f32, a, a) == (0.0, 0.0, True)


def test_differences_of_cancelled_sums_are_measured_by_the_tensor() -> None:
    a, b = np.array([64.0, 2**-20], np.float32), np.array([64.0, 2**-19], np.float32)
    assert difference(f32, a, b) == (2**-20, 8.0, False)


def test_tensors_travel_as_the_bytes_of_their_layout() -> None:
    k = Builder("strided")
    tensor = k.tensor("T", s32, (2, 3), strides=(8, 1))
    program = k.finish()
    value = np.arange(6, dtype=np.int32).reshape(2, 3)
    contents = pack(program, {"T": value})
    assert contents["T"].nbytes == tensor.nbytes == 44
    assert (unpack(program, contents)["T"] == value).all()
