"""A worker whose GPU is the simulator: for testing everything around the hardware.

It stands for a GPU that agrees with the simulator; a cubin ``b"wrong"`` makes it change a result,
``b"dies"`` ends the process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.gpu import worker
from tilesim.gpu.driver import DeviceInfo, Gpu
from tilesim.gpu.emit.watch import BLOCKED, EXPIRED, RECORD_WORDS
from tilesim.gpu.watchdog import pack, unpack
from tilesim.ir.memory import TensorMap
from tilesim.sim.findings import Finding
from tilesim.sim.simulate import simulate


class FakeGpu(Gpu):
    """The part of a GPU that a worker uses."""

    def __init__(self) -> None:
        self.info = DeviceInfo("fake", (9, 0), 1, "0.0")
        self.job: worker.Job | None = None
        self._memory: dict[int, NDArray[np.uint8]] = {}
        self._cubin = b""
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
        self._mailbox = np.zeros(nbytes, dtype=np.uint8)
        return self._mailbox, 1

    def free_pinned(self, data: NDArray[np.uint8]) -> None:
        assert data.nbytes == self._mailbox.nbytes

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
        for finding in run.findings:
            if finding.rule == "deadlock":
                self._hang(finding)

    def _hang(self, finding: Finding) -> None:
        assert self.job is not None
        source = self.job.source
        words = self._mailbox.view(np.uint64).reshape(-1, RECORD_WORDS)
        for p in finding.participants:
            assert p.warp is not None
            site = next(n for n, s in enumerate(source.sites) if s.loc == p.loc)
            kind = BLOCKED if source.sites[site].what.startswith("named") else EXPIRED
            words[p.cta * source.program.warps + p.warp, :6] = (kind | site << 32, 0, 1, 5, 2, 9)
        self._state = "CUDA_ERROR_LAUNCH_FAILED"

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
