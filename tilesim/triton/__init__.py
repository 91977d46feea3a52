"""Checks Triton and Gluon kernels as they are launched, on a machine without a GPU.

    import tilesim.triton as tt

    a = tt.empty((1024, 512), tl.float16)
    report = tt.check(kernel[grid], a, 512, BLOCK=128)

Triton compiles the kernel for ``target``; what it would launch is checked: no data, no GPU. Where
torch is at hand its tensors do as well, on the "meta" device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilesim.checker import Report
from tilesim.checker import check as check_program
from tilesim.errors import UsageError
from tilesim.ir.program import Strict
from tilesim.ptx.lowering import Unsupported
from tilesim.ptx.program import lower
from tilesim.ptx.reader import read
from tilesim.report.unsupported import unsupported
from tilesim.triton.driver import MULTIPROCESSORS, Launched, recording
from tilesim.triton.tensor import Tensor, empty


def record(
    launcher: Callable[..., object], *args: Any, target: str = "sm_90a", **options: Any
) -> tuple[Launched, ...]:
    """What ``launcher(*args, **options)`` would launch, each distinct kernel and launch once.

    ``launcher`` is ``kernel[grid]``, or any function that launches kernels.

    Raises:
        UsageError: the target is not known.
    """
    if target not in MULTIPROCESSORS:
        raise UsageError(f"target must be {', '.join(MULTIPROCESSORS)}, not {target!r}")
    found: list[Launched] = []
    with recording(target, found.append):
        launcher(*args, **options)
    return tuple(found)


def check(
    launcher: Callable[..., object], *args: Any, target: str = "sm_90a",
    strict: Strict = "practice", **options: Any,
) -> Report:  # fmt: skip
    """The report on the one kernel that ``launcher(*args, **options)`` launches.

    Raises:
        UsageError: it launches none, or several; `record` has them all.
    """
    found = record(launcher, *args, target=target, **options)
    if len(found) != 1:
        names = ", ".join(x.launch.entry for x in found) or "none"
        raise UsageError(f"tilesim.triton.check takes the launch of one kernel, this is {names}")
    return check_launched(found[0], strict=strict)


def check_launched(launched: Launched, *, strict: Strict = "practice") -> Report:
    """The report on a recorded launch."""
    name = launched.launch.entry
    module = read(launched.ptx, f"{name}.ptx")
    entry = next(e for e in module.entries if e.name == name)
    try:
        return check_program(lower(module, entry, launched.launch), strict=strict)
    except Unsupported as error:
        return unsupported(name, error)


__all__ = ["Launched", "Tensor", "check", "check_launched", "empty", "record"]
