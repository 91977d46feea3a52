"""Kernels that compilers would launch, recorded on a machine without a GPU, and their reports.

What the adapters of the compilers (`tilesim.triton`, `tilesim.tilelang`, ...) have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from tilesim.checker import Report
from tilesim.checker import check as check_program
from tilesim.errors import UsageError
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Launch, without_contents
from tilesim.ptx.parser import read
from tilesim.ptx.plain import plain
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported
from tilesim.records import dataclass, field, replace
from tilesim.report.text import covering, unsupported

#: by target: multiprocessors of the GPU that host code is told it has
MULTIPROCESSORS: Mapping[str, int] = {"sm_90a": 132, "sm_100a": 148, "sm_103a": 160}


@dataclass(frozen=True)
class Launched:
    """A kernel as it would be launched: its PTX, and what PTX does not say.

    ``source`` is the CUDA C++ that its compiler made of it, if it did; `source_file` is the name
    that lines of the PTX give it. Both texts are left out of what `repr` shows.
    """

    ptx: str = field(repr=False)
    launch: Launch
    source: str = field(default="", compare=False, repr=False)
    source_file: str = field(default="", compare=False)


@dataclass(frozen=True)
class Skipped:
    """A configuration that was not launched, and why."""

    kernel: str
    configuration: str
    why: str

    def __str__(self) -> str:
        return f"{self.kernel}: {self.configuration} not launched: {self.why}"


class Recording(Protocol):
    """What an adapter has: a context in which each launch of its compiler is handed to ``record``
    instead of made.

    ``tensors`` is the device of torch that host code is told to make its tensors on; ``skip`` is
    told of configurations that are not launched.
    """

    def __call__(
        self, target: str, record: Callable[[Launched], None], *, tensors: str = ...,
        skip: Callable[[Skipped], None] = ...,
    ) -> AbstractContextManager[None]: ...  # fmt: skip


Progress = Callable[[int, int, Launched], None]
Reports = tuple[tuple[Launched, Report], ...]


class Distinct:
    """Hands each distinct launch to ``record``, once: one that differs in what memory holds alone
    is the same. ``repeats`` counts the others."""

    def __init__(self, record: Callable[[Launched], None]) -> None:
        self._seen: set[Launched] = set()
        self._record = record
        self.repeats = 0

    def __call__(self, launched: Launched) -> None:
        key = replace(launched, launch=without_contents(launched.launch))
        if key in self._seen:
            self.repeats += 1
        else:
            self._seen.add(key)
            self._record(launched)


def once(
    call: Callable[[], object], *_arguments: Any, quantiles: Sequence[float] | None = None,
    return_mode: str = "mean", **_options: Any,
) -> float | list[float]:  # fmt: skip
    """A measurement: the call is made once; all take equally long."""
    call()
    several = quantiles is not None or return_mode == "all"
    return [1.0 for _ in quantiles or (0.5,)] if several else 1.0


def known_target(target: str) -> str:
    """``target``, if kernels can be compiled for it.

    Raises:
        UsageError: it is not known.
    """
    if target not in MULTIPROCESSORS:
        raise UsageError(f"target must be {', '.join(MULTIPROCESSORS)}, not {target!r}")
    return target


class Adapter:
    """What the package of a compiler's adapter offers: `record`, `check`, `check_all`."""

    def __init__(self, package: str, recording: Recording) -> None:
        self._package = package
        self._recording = recording

    def record(
        self, launcher: Callable[..., object], *args: Any, target: str = "sm_90a",
        skip: Callable[[Skipped], None] = lambda skipped: None, **options: Any,
    ) -> tuple[Launched, ...]:  # fmt: skip
        """What ``launcher(*args, **options)`` would launch, each distinct kernel and launch once.

        ``launcher`` is a kernel, or any function that launches kernels. ``skip`` is told of
        configurations of an autotuned kernel that are not launched.

        Raises:
            UsageError: the target is not known, or a kernel does not take its arguments.
        """
        found: list[Launched] = []
        with self._recording(known_target(target), Distinct(found.append), skip=skip):
            launcher(*args, **options)
        return tuple(found)

    def check(
        self, launcher: Callable[..., object], *args: Any, target: str = "sm_90a",
        strict: Strict = "practice", **options: Any,
    ) -> Report:  # fmt: skip
        """The report on the one kernel that ``launcher(*args, **options)`` launches.

        Raises:
            UsageError: it launches none, or several, as an autotuned one may; `check_all` takes
                them.
        """
        found = self.record(launcher, *args, target=target, **options)
        if len(found) != 1:
            names = ", ".join(f"{x.launch.entry} {x.launch.about}".strip() for x in found)
            raise UsageError(
                f"{self._package}.check takes the launch of one kernel in one configuration "
                f"(check_all takes several), this is {names or 'none'}"
            )
        return check_launched(found[0], strict=strict)

    def check_all(
        self, launcher: Callable[..., object], *args: Any, target: str = "sm_90a",
        strict: Strict = "practice", progress: Progress | None = None, **options: Any,
    ) -> Reports:  # fmt: skip
        """What ``launcher(*args, **options)`` launches, each kernel, configuration and launch with
        its report; ``covers`` of a report says which configuration it is.

        ``progress(number, of, launched)`` is called before each check; ``number`` counts from 1.

        Raises:
            UsageError: it launches none, or the target is not known.
        """
        found = self.record(launcher, *args, target=target, **options)
        if not found:
            raise UsageError(f"{self._package}.check_all takes launches of kernels, got none")
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
        program = lower(module, entry, launched.launch)
        form = partial(plain, module, entry, launched.launch)
        report = check_program(program, plain=form, **options)
    except Unsupported as error:
        report = unsupported(name, error)
    return covering(report, launched.launch)
