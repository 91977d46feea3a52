"""Checks tilelang kernels as they are launched, on a machine without a GPU.

    import tilesim.tilelang as tl

    a, b = (torch.empty((1024, 1024), dtype=torch.float16, device="meta") for _ in range(2))
    report = tl.check(lambda: matmul(1024, 1024, 1024)(a, b))

tilelang compiles the kernel for ``target`` (this takes nvcc); what it would launch is checked: no
data, no GPU.
"""

from __future__ import annotations

from tilesim.recording import Adapter, Launched, Skipped, check_launched
from tilesim.recording.without_gpu import without_gpu
from tilesim.tilelang.driver import recording

_adapter = Adapter(__name__, without_gpu(recording))
record, check, check_all = _adapter.record, _adapter.check, _adapter.check_all

__all__ = ["Launched", "Skipped", "check", "check_all", "check_launched", "record"]
