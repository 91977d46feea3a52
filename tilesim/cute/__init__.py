"""Checks kernels of CuTe DSL as they are launched, on a machine without a GPU.

    import tilesim.cute as tc

    a, b = (from_dlpack(torch.empty((1024, 512), dtype=torch.float16)) for _ in range(2))
    report = tc.check(lambda: matmul(a, b))

CuTe DSL compiles the kernel for ``target``, and its host code runs; what it would launch is
checked: no data, no GPU. Tensors on the CPU stand for those on the GPU.
"""

from __future__ import annotations

from tilesim.cute.driver import recording
from tilesim.recording import Adapter, Launched, Skipped, check_launched

_adapter = Adapter(__name__, recording)
record, check, check_all = _adapter.record, _adapter.check, _adapter.check_all

__all__ = ["Launched", "Skipped", "check", "check_all", "check_launched", "record"]
