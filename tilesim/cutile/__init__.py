"""Checks cuTile kernels as they are launched, on a machine without a GPU.

    import cuda.tile as ct
    import tilesim.cutile as tc

    a, b = (torch.empty((1024, 1024), dtype=torch.float16) for _ in range(2))
    report = tc.check(lambda: ct.launch(0, (8, 8), product, (a, b)))

cuTile compiles the kernel for ``target``, and its own code lays out the launch; what it would
launch is checked: no data, no GPU. Tensors on the CPU stand for those on the GPU.
"""

from __future__ import annotations

from tilesim.cutile.driver import recording
from tilesim.recording import Adapter, Launched, Skipped, check_launched

_adapter = Adapter(__name__, recording)
record, check, check_all = _adapter.record, _adapter.check, _adapter.check_all

__all__ = ["Launched", "Skipped", "check", "check_all", "check_launched", "record"]
