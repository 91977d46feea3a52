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
from tilesim.report.ptx import covering, unsupported
from tilesim.triton.autotuning import Skipped
from tilesim.triton.driver import MULTIPROCESSORS, Launched, recording
from tilesim.triton.tensor import Tensor, empty

Progress = Callable[[int, int, Launched], None]


def record(
    launcher: Callable[..., object],
    *args: Any,
    target: str = "sm_90a",
    skip: Callable[[Skipped], None] = lambda skipped: None,
    **options: Any,
) -> tuple[Launched, ...]:
    """What ``launcher(*args, **options)`` would launch, each distinct kernel and launch once.

    ``launcher`` is ``kernel[grid]``, or any function that launches kernels. Of an autotuned kernel
    each configuration is launched; ``skip`` is told of those that cannot be.

    Raises:
        UsageError: the target is not known.
    """
    found: list[Launched] = []
    with recording(known_target(target), found.append, skip=skip):
        launcher(*args, **options)
    return tuple(found)


def known_target(target: str) -> str:
    """``target``, if kernels can be compiled for it.

    Raises:
        UsageError: it is not known.
    """
    if target not in MULTIPROCESSORS:
        raise UsageError(f"target must be {', '.join(MULTIPROCESSORS)}, not {target!r}")
    return target


def check(
    launcher: Callable[..., object], *args: Any, target: str = "sm_90a",
    strict: Strict = "practice", **options: Any,
) -> Report:  # fmt: skip
    """The report on the one kernel that ``launcher(*args, **options)`` launches.

    Raises:
        UsageError: it launches none, or several, as an autotuned one does; `check_all` takes them.
    """
    found = record(launcher, *args, target=target, **options)
    if len(found) != 1:
        names = ", ".join(f"{x.launch.entry} {x.launch.about}" for x in found) or "none"
        raise UsageError(
            "tilesim.triton.check takes the launch of one kernel in one configuration "
            f"(check_all takes several), this is {names}"
        )
    return check_launched(found[0], strict=strict)


def check_all(
    launcher: Callable[..., object], *args: Any, target: str = "sm_90a",
    strict: Strict = "practice", progress: Progress | None = None, **options: Any,
) -> tuple[tuple[Launched, Report], ...]:  # fmt: skip
    """What ``launcher(*args, **options)`` launches, each kernel, configuration and launch with its
    report; ``covers`` of a report says which configuration it is.

    ``progress(number, of, launched)`` is called before each check; ``number`` counts from 1.

    Raises:
        UsageError: it launches none, or the target is not known.
    """
    found = record(launcher, *args, target=target, **options)
    if not found:
        raise UsageError("tilesim.triton.check_all takes launches of kernels, there are none")
    reports = []
    for number, launched in enumerate(found, 1):
        if progress is not None:
            progress(number, len(found), launched)
        reports.append((launched, check_launched(launched, strict=strict)))
    return tuple(reports)


def check_launched(launched: Launched, **options: Any) -> Report:
    """The report on a recorded launch; ``options`` are those of `tilesim.check`."""
    name = launched.launch.entry
    module = read(launched.ptx, f"{name}.ptx")
    entry = next(e for e in module.entries if e.name == name)
    try:
        report = check_program(lower(module, entry, launched.launch), **options)
    except Unsupported as error:
        report = unsupported(name, error)
    return covering(report, launched.launch)


__all__ = [
    "Launched", "Skipped", "Tensor", "check", "check_all", "check_launched", "empty",
    "known_target", "record",
]  # fmt: skip
