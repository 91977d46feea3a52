"""Checks tilus kernels as they are launched, on a machine without a GPU.

    import tilesim.tilus as tl

    a, b, c = (torch.empty((1024, 1024), dtype=torch.float16, device="meta") for _ in range(3))
    report = tl.check(Matmul(), 1024, 1024, 1024, a, b, c, target="sm_100a")

tilus compiles the kernel for ``target`` (this takes nvcc); what it would launch is checked: no
data, no GPU.
"""

from __future__ import annotations

from tilesim.recording import Adapter, Launched, Skipped, check_launched
from tilesim.recording.without_gpu import without_gpu
from tilesim.tilus.driver import recording

_adapter = Adapter(__name__, without_gpu(recording))
record, check, check_all = _adapter.record, _adapter.check, _adapter.check_all

__all__ = ["Launched", "Skipped", "check", "check_all", "check_launched", "record"]
