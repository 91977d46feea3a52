"""Checks Triton and Gluon kernels as they are launched, on a machine without a GPU.

    import tilesim.triton as tt

    a = tt.empty((1024, 512), tl.float16)
    report = tt.check(kernel[grid], a, 512, BLOCK=128)

Triton compiles the kernel for ``target``; what it would launch is checked: no data, no GPU. Where
torch is at hand its tensors do as well, on the "meta" device.
"""

from __future__ import annotations

from tilesim.recording import Adapter, Launched, Skipped, check_launched, known_target
from tilesim.triton.driver import recording
from tilesim.triton.tensor import Tensor, empty

_adapter = Adapter(__name__, recording)
record, check, check_all = _adapter.record, _adapter.check, _adapter.check_all

__all__ = [
    "Launched", "Skipped", "Tensor", "check", "check_all", "check_launched", "empty",
    "known_target", "record",
]  # fmt: skip
