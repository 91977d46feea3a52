"""A worker whose GPU is the simulator: for testing everything around the hardware.

It stands for a GPU that agrees with the simulator; a cubin ``b"wrong"`` makes it change a result,
``b"dies"`` ends the process, ``b"hardware"`` hangs without a record, ``b"hardware marked"`` with
one, until the driver, which is that of `tests.autopsy.fake_program`, has dumped it. A traced kernel
leaves two records per warp and instruction of its role; each takes `RECORD_CYCLES`, and two cycles
are one nanosecond.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.autopsy.fake_program import drive
from tilesim.autopsy.trigger import PIPE
from tilesim.findings.finding import Finding
from tilesim.gpu import worker
from tilesim.gpu.driver import DeviceInfo, Gpu
from tilesim.gpu.emit import trace
from tilesim.gpu.emit.emitter import Source
from tilesim.gpu.emit.watch import BLOCKED, EXPIRED, RECORD_WORDS
from tilesim.gpu.watchdog import pack, unpack
from tilesim.ir.declarations import TensorMap
from tilesim.ir.op import Op
from tilesim.ir.program import Role, Stmt, children
from tilesim.sim.machine.simulate import simulate

#: how long an instruction takes in a fake trace
RECORD_CYCLES = 20


def located(body: tuple[Stmt, ...], role: str) -> Iterator[Op]:
    """The instructions outside of roles and in one role."""
    for stmt in body:
        if isinstance(stmt, Op):
            yield stmt
        if not isinstance(stmt, Role) or stmt.name == role:
            for region in children(stmt):
                yield from located(region, role)


def write_area(
    words: NDArray[np.uint64],
    number: int,
    cta: int,
    clock: int,
    ns: int,
    records: Sequence[tuple[int, int, int, int]],
    cycles: int,
) -> None:
    """What a warp leaves in area ``number`` of a trace's buffer.

    It starts when its SM's counter is ``clock`` and the global timer ``ns``, and ends ``cycles``
    later (0: it does not come to its end); two cycles are a nanosecond. ``records`` are (start,
    end, site, detail), in cycles since the warp's start.
    """
    room = int(words[1])
    area = trace.AREA_WORDS + trace.RECORD_WORDS * (room + room // trace.OTHERS)
    own = words[trace.BUFFER_WORDS + number * area :][:area]
    own[trace.CTA] = cta + 1
    own[trace.START : trace.START + 2] = clock, ns
    if cycles:
        own[trace.END : trace.END + 2] = clock + cycles, ns + cycles // 2
    for n, (start, end, site, detail) in enumerate(records[:room]):
        at = trace.AREA_WORDS + trace.RECORD_WORDS * n
        low = [(clock + x) & 0xFFFFFFFF for x in (start, end)]
        own[at : at + 2] = low[0] << 32 | low[1], site + 1 << 16 | detail
    own[trace.LOST] = max(0, len(records) - room)


class FakeGpu(Gpu):
    """The part of a GPU that a worker uses."""

    def __init__(self) -> None:
        self.info = DeviceInfo("fake", (9, 0), 1, "0.0")
        self.job: worker.Job | None = None
        self._memory: dict[int, NDArray[np.uint8]] = {}
        self._pinned: dict[int, NDArray[np.uint8]] = {}
        self._state = "done"

    def require(self, arch: str) -> None:
        assert arch == "sm_90a"

    def allocate(self, nbytes: int) -> int:
        address = 4096 * (len(self._memory) + 1)
        self._memory[address] = np.zeros(nbytes, dtype=np.uint8)
        return address

    def free(self, address: int) -> None:
        del self._memory[address]

    def upload(self, address: int, data: NDArray[np.uint8]) -> None:
        self._memory[address][:] = data

    def download(self, address: int, data: NDArray[np.uint8]) -> None:
        data[:] = self._memory[address]

    def pinned(self, nbytes: int) -> tuple[NDArray[np.uint8], int]:
        address = len(self._pinned) + 1
        self._pinned[address] = np.zeros(nbytes, dtype=np.uint8)
        return self._pinned[address], address

    def free_pinned(self, data: NDArray[np.uint8]) -> None:
        assert any(data.ctypes.data == known.ctypes.data for known in self._pinned.values())

    def load(self, cubin: bytes, entry: str, smem_bytes: int) -> bytes:
        return cubin

    def tensor_map(self, tensor_map: TensorMap, address: int) -> NDArray[np.uint64]:
        assert self._memory[address].nbytes == tensor_map.tensor.nbytes
        return np.zeros(16, dtype=np.uint64)

    def launch(
        self,
        function: Any,
        grid: tuple[int, int, int],
        block: int,
        smem_bytes: int,
        arguments: Sequence[NDArray[Any]],
        stream: int = 0,
        *,
        cooperative: bool = False,
    ) -> None:
        assert self.job is not None
        if function == b"dies":
            os._exit(3)
        if function.startswith(b"hardware"):
            self._state = "running"
            if PIPE in os.environ:
                drive(function.decode().split())
            for mailbox in self._pinned.values():
                if b"marked" in function:  # warp 0 has come to the first place where it can block
                    mailbox.view(np.uint64)[0] = BLOCKED
            return
        source = self.job.source
        program = source.program
        where = {
            p.name: int(a[0])
            for p, a in zip(source.params, arguments, strict=True) if p.kind == "tensor"
        }  # fmt: skip
        inputs = unpack(program, {name: self._memory[address] for name, address in where.items()})
        run = simulate(program, inputs)
        for name, data in pack(program, run.outputs).items():
            self._memory[where[name]][:] = data
        if function == b"wrong":
            self._memory[where[program.tensors[-1].name]][0] ^= 1
        self._state = "done"
        addresses = {
            p.kind: int(a[0]) for p, a in zip(source.params, arguments, strict=True)
            if p.kind in ("mailbox", "trace")
        }  # fmt: skip
        if "trace" in addresses:
            self._trace(source, addresses["trace"])
        for finding in run.findings:
            if finding.rule == "deadlock":
                self._state = "CUDA_ERROR_LAUNCH_FAILED"
                if "mailbox" in addresses:
                    self._hang(finding, self._pinned[addresses["mailbox"]])

    def _trace(self, source: Source, address: int) -> None:
        memory = self._memory if address in self._memory else self._pinned
        words = memory[address].view(np.uint64)
        program = source.program
        for number in range(int(words[0]) * program.cluster_size * program.warps):
            cta, warp = divmod(number, program.warps)
            role = program.role_of(warp)
            own = {str(op.loc) for op in located(program.body, role)}
            executed = [k for k, op in enumerate(source.traced) if str(op.loc) in own]
            records = [
                (RECORD_CYCLES * n, RECORD_CYCLES * (n + 1), site, 0)
                for n, site in enumerate((*executed, *executed))
            ]
            write_area(words, number, cta, 1000 * cta, 5000, records, RECORD_CYCLES * 100)

    def _hang(self, finding: Finding, mailbox: NDArray[np.uint8]) -> None:
        assert self.job is not None
        source = self.job.source
        words = mailbox.view(np.uint64).reshape(-1, RECORD_WORDS)
        for p in finding.participants:
            assert p.warp is not None
            site = next(n for n, s in enumerate(source.sites) if s.loc == p.loc)
            kind = BLOCKED if source.sites[site].what.startswith("named") else EXPIRED
            words[p.cta * source.program.warps + p.warp, :4] = (kind | site << 32, 0, 1, 9)

    def poll(self, stream: int = 0) -> str:
        return self._state


class FakeWorker(worker.Worker):
    """A worker on the fake GPU."""

    def __init__(self) -> None:
        self.fake = FakeGpu()
        super().__init__(self.fake)

    def execute(self, job: worker.Job) -> worker.Answer:
        self.fake.job = job
        return super().execute(job)


if __name__ == "__main__":
    worker.main(FakeWorker)
