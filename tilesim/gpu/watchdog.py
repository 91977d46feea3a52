"""Running kernels that may hang: a process of their own, bounded waits, and a report.

The kernel is emitted with ``watchdog=True``: a wait that exceeds its budget leaves a record (which
warp, barrier, phase, instruction) in pinned host memory and the kernel traps.
Warps that hang in hardware barriers do not trap: then the driver dumps the kernel, and the report
of the dump (`tilesim.autopsy`) says what they wait for. Trap, dump, or killing the process costs
only the worker process: this one, and the GPU, stay usable.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import tilesim
from tilesim import autopsy as autopsies
from tilesim.arith.types import numpy_dtype
from tilesim.autopsy.trigger import Limits, Prepared, make_dumps, prepared
from tilesim.errors import TilesimError, UsageError
from tilesim.gpu.compile import FILE, Binary
from tilesim.gpu.driver import DeviceInfo
from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.emit.watch import BLOCKED, EXPIRED
from tilesim.gpu.errors import DeviceError
from tilesim.gpu.worker import Answer, Job
from tilesim.ir import effects as fx
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Role, Stmt, children
from tilesim.records import dataclass, field

Arrays = Mapping[str, NDArray[Any]]

#: what starting the process, the driver and a context may take, in seconds
_START_SECONDS = 120.0
#: how long the driver may take to begin a dump
_LIMITS = Limits(begin=10.0)
#: a line of the generated text, as the report of a dump names it
_GENERATED = re.compile(rf"(?<![\w.]){re.escape(FILE)}:(\d{{1,7}})")
_SCRIPT = "from tilesim.gpu.worker import main; main()"


@dataclass(frozen=True)
class Waiter:
    """A warp that was blocked when the launch was given up."""

    cta: int
    warp: int
    role: str
    action: str
    loc: Loc
    seconds: float | None = None

    def __str__(self) -> str:
        return f"CTA {self.cta} {self.role} (warp {self.warp}) {self.action} at {self.loc}"


@dataclass(frozen=True)
class Hang:
    """A launch that did not end: warps that were waiting, and what could have released them.

    If the watchdog did not trap, ``autopsy`` is the report of a dump, or why there is none.
    """

    kernel: str
    waiters: tuple[Waiter, ...]
    suppliers: tuple[str, ...]
    seconds: float
    autopsy: tuple[str, ...] = field(repr=False, default=())

    @property
    def places(self) -> frozenset[tuple[int, str]]:
        """(CTA, source line) of every waiter."""
        return frozenset((w.cta, str(w.loc)) for w in self.waiters)

    def __str__(self) -> str:
        head = f"deadlock: {self.kernel} did not end in {self.seconds:.1f} s on the GPU"
        if not self.waiters:
            head += "; no warp left a record, so none of them waits at an instruction we watch"
        lines = [*_together(self.waiters), *self.suppliers, *self.autopsy]
        return "\n".join([head, *(f"   {line}".rstrip() for line in lines)])


@dataclass(frozen=True)
class Execution:
    """What became of the launches of a kernel: the tensors after each run, or how it failed.

    ``traces``: the words that a traced kernel left in its buffer, run by run.
    """

    status: Literal["done", "hang", "error"]
    outputs: tuple[dict[str, NDArray[Any]], ...] = field(repr=False, default=())
    hang: Hang | None = None
    detail: str = ""
    seconds: tuple[float, ...] = ()
    device: DeviceInfo | None = None
    traces: tuple[NDArray[np.uint64], ...] = field(repr=False, default=())


def _together(waiters: Iterable[Waiter]) -> Iterator[str]:
    """One line per role and place; warps that wait in the same way share it."""
    groups: dict[tuple[object, ...], list[Waiter]] = {}
    for waiter in waiters:
        groups.setdefault((waiter.cta, waiter.role, waiter.action, waiter.loc), []).append(waiter)
    for members in groups.values():
        first = members[0]
        text = str(first)
        if len(members) > 1:
            numbers = ", ".join(str(m.warp) for m in members)
            text = text.replace(f"(warp {first.warp})", f"(warps {numbers})", 1)
        yield text


class Executor:
    """Runs kernels in a worker process, which is replaced when a kernel has spoilt it.

    Use it as a context manager; one executor serves any number of kernels. ``script``
    is what the worker process executes, ``limits`` how long dumps of it may take.
    """

    def __init__(self, script: str = _SCRIPT, limits: Limits = _LIMITS) -> None:
        self._script, self._limits = script, limits
        self._folder: TemporaryDirectory[str] | None = None
        self._prepared: Prepared | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def __enter__(self) -> Executor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def execute(
        self,
        binary: Binary,
        inputs: Arrays,
        *,
        seeds: Sequence[int] = (0,),
        budget: float = 1.0,
        timeout: float | None = None,
        trace: NDArray[np.uint64] | None = None,
        trace_on_host: bool = False,
        dump: bool | None = None,
    ) -> Execution:
        """Launches a kernel once per seed, each time on fresh copies of ``inputs``.

        Args:
            inputs: initial contents of global tensors by name (zeros where missing).
            seeds: of the random delays, for a source emitted with ``perturb``.
            budget: seconds a wait may take before the watchdog reports it.
            timeout: seconds a launch may take; by default what the watchdog needs, and some more.
            trace: the buffer of a source emitted with ``trace`` (`tilesim.gpu.trace`).
            trace_on_host: keeps that buffer where it survives a hang.
            dump: whether the driver is told to be ready to dump the kernel; by default unless it is
                recorded without a watchdog, as times are measured then.

        Raises:
            DeviceError: there is no driver here.
            UsageError: an input does not fit its tensor.
        """
        program = binary.source.program
        limit = timeout if timeout is not None else 3 * budget + 2
        job = Job(
            binary.source, binary.cubin, pack(program, inputs), tuple(seeds), budget, limit, trace,
            trace_on_host,
        )  # fmt: skip
        watched = any(p.kind == "mailbox" for p in binary.source.params)
        ready = dump if dump is not None else trace is None or watched
        answer, autopsy = self._ask(job, _START_SECONDS + limit * len(seeds), dump=ready)
        hang: Hang | None = None
        if answer is None:
            hang = Hang(program.name, (), (), limit, autopsy)
            return Execution("hang", hang=hang, detail="killed")
        if answer.status == "error" and answer.device is None:
            raise DeviceError(answer.detail)
        outputs = tuple(unpack(program, run) for run in answer.runs)
        if answer.status == "hang":
            hang = report(binary.source, answer.records, answer.seconds[-1], autopsy)
        return Execution(
            answer.status, outputs, hang, answer.detail, answer.seconds, answer.device,
            answer.traces,
        )  # fmt: skip

    def _ask(self, job: Job, limit: float, *, dump: bool) -> tuple[Answer | None, tuple[str, ...]]:
        """The worker's answer, None if it had to be killed; and the report of the dump of a kernel
        that runs on."""
        connection, answer = self._start(dump=dump), None
        try:
            connection.send(job)
            if connection.poll(limit):
                answer = connection.recv()
        except (EOFError, OSError) as error:
            code = self.close()
            raise DeviceError(f"the worker process ended without answer, code {code}") from error
        assert answer is None or isinstance(answer, Answer)
        autopsy: tuple[str, ...] = ()
        if self._prepared is not None and (answer is None or answer.running):
            autopsy = self._autopsy(job.source, self._prepared)
        if answer is None or answer.status != "done":
            self.close()
        return answer, autopsy

    def _autopsy(self, source: Source, ready: Prepared) -> tuple[str, ...]:
        """Has the driver dump the worker process, while its kernel hangs; the report in lines."""
        assert self._process is not None
        made = make_dumps([ready.names.of(self._process.pid)], self._limits)
        if not made.dumps:
            why = next(iter(made.problems), "the driver has made no pipe for dumps")
            return (f"no dump of it: {why}",)
        try:
            text = autopsies.render(autopsies.autopsy(made.dumps[0]))
        except TilesimError as error:
            return (f"no report of its dump: {error}",)
        return tuple(in_source(source, text).splitlines())

    def _start(self, *, dump: bool) -> Connection:
        """The pipe to a worker whose driver is ready to make dumps, or one that is not."""
        if self._connection is not None and dump == (self._prepared is not None):
            return self._connection
        self.close()
        ours, theirs = Pipe()
        root = str(Path(tilesim.__file__).resolve().parent.parent)
        environment = dict(os.environ)
        if dump:
            self._folder = TemporaryDirectory(prefix="tilesim-gpu-")
            folder = Path(self._folder.name)
            self._prepared = prepared(os.environ, folder, folder)
            environment |= self._prepared.environment
        environment["PYTHONPATH"] = os.pathsep.join([root, *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._script, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env=environment,
        )
        theirs.close()
        self._connection = ours
        return ours

    def close(self) -> int | None:
        """Ends the worker process and returns its exit code."""
        process, connection, folder = self._process, self._connection, self._folder
        self._process = self._connection = self._folder = self._prepared = None
        try:
            return _ended(process, connection)
        finally:
            if folder is not None:
                folder.cleanup()


def _ended(process: subprocess.Popen[bytes] | None, connection: Connection | None) -> int | None:
    if connection is not None:
        connection.close()
    if process is None:
        return None
    try:
        return process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


# ---------------------------------------------------------------------- tensors as bytes


def _as_array(tensor: GlobalTensor, data: NDArray[np.uint8]) -> NDArray[Any]:
    typed = data.view(numpy_dtype(tensor.dtype))
    return np.lib.stride_tricks.as_strided(typed, tensor.shape, tensor.byte_strides)


def pack(program: Program, inputs: Arrays) -> dict[str, NDArray[np.uint8]]:
    """The bytes of every global tensor, laid out as the tensor says."""
    unknown = sorted(set(inputs) - {t.name for t in program.tensors})
    if unknown:
        raise UsageError(f"{program.name} has no tensor {', '.join(unknown)}")
    contents = {}
    for tensor in program.tensors:
        data = np.zeros(tensor.nbytes, dtype=np.uint8)
        if tensor.name in inputs:
            value = np.asarray(inputs[tensor.name])
            if value.shape != tensor.shape:
                raise UsageError(f"input {tensor.name} has shape {value.shape}, not {tensor.shape}")
            _as_array(tensor, data)[...] = value.astype(numpy_dtype(tensor.dtype))
        contents[tensor.name] = data
    return contents


def unpack(program: Program, contents: Mapping[str, NDArray[np.uint8]]) -> dict[str, NDArray[Any]]:
    """The tensors whose bytes are given, as arrays."""
    return {t.name: _as_array(t, contents[t.name]).copy() for t in program.tensors}


# ---------------------------------------------------------------------- reports


def report(
    source: Source,
    records: Iterable[tuple[int, tuple[int, ...]]],
    seconds: float,
    autopsy: tuple[str, ...] = (),
) -> Hang:
    """The mailbox's records as a report like the simulator's; ``autopsy`` is that of a dump."""
    waiters = tuple(_waiter(source, warp, words) for warp, words in records)
    suppliers = tuple(_suppliers(source, records))
    return Hang(source.program.name, waiters, suppliers, seconds, autopsy)


def _waiter(source: Source, agent: int, words: tuple[int, ...]) -> Waiter:
    kind, site = words[0] & 0xFFFFFFFF, source.sites[words[0] >> 32]
    cta, warp = divmod(agent, source.program.warps)
    role = site.role or f"warp {warp}"
    if kind == EXPIRED:
        action = f"waits on {site.what}[{words[2]}] {_phase(words[1])}"
        return Waiter(cta, warp, role, action, site.loc, words[3] / 1e9)
    action = f"waits at {site.what}" if kind == BLOCKED else f"spins in {site.what}"
    return Waiter(cta, warp, role, action, site.loc)


def in_source(source: Source, text: str) -> str:
    """A text with lines of the kernel in place of those of the generated text, where known."""
    return _GENERATED.sub(lambda found: str(source.loc(int(found[1])) or found[0]), text)


def _phase(operand: int) -> str:
    return f"parity {operand}" if operand in (0, 1) else f"token {operand:#x}"


def _suppliers(source: Source, records: Iterable[tuple[int, tuple[int, ...]]]) -> Iterator[str]:
    """For every mbarrier array that is waited on, the instructions that could complete it."""
    expired = [source.sites[w[0] >> 32] for _, w in records if w[0] & 0xFFFFFFFF == EXPIRED]
    for name in dict.fromkeys(site.what for site in expired):
        found = dict.fromkeys(
            f"{role or 'every warp'} ({op.mnemonic} at {op.loc})"
            for role, op in _located(source.program.body, "")
            if _completes(op, name)
        )
        releasers = ", ".join(found) if found else "no instruction of the kernel"
        yield f"{name} is released by {releasers}"


def _located(body: tuple[Stmt, ...], role: str) -> Iterator[tuple[str, Op]]:
    for stmt in body:
        if isinstance(stmt, Op):
            yield role, stmt
        inner = stmt.name if isinstance(stmt, Role) and not role else role
        for region in children(stmt):
            yield from _located(region, inner)


def _completes(op: Op, name: str) -> bool:
    return any(
        isinstance(e, (fx.Arrives, fx.Completes)) and e.mbar.array.name == name
        for e in op.effects()
    )
