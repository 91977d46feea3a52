"""From a core dump to what is known of it: which kernels had not ended, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Literal

from tilesim.autopsy.core_dump import CoreDump, Cta, Device, Driver, Grid
from tilesim.autopsy.wait_for import Entry, wait_for
from tilesim.autopsy.waits import Group, Running, Sleep, Trap
from tilesim.cubin.disassembly import function_at
from tilesim.cubin.image import Image, KernelInfo
from tilesim.cubin.sass import Function
from tilesim.records import dataclass

#: what is known of a launch: ``hangs``, all of its warps wait; ``waits``, some do, and of others
#: that is not known; ``stopped``, a warp has met an exception; ``pending``, no CTA of it is
#: resident; ``open``, no wait is known
State = Literal["hangs", "waits", "stopped", "pending", "open"]


@dataclass(frozen=True)
class Code:
    """A kernel's machine code: the cubin that it was loaded from, and what is written down of it
    there."""

    image: Image
    function: Function
    info: KernelInfo


@dataclass(frozen=True)
class Launched:
    """A launch that had not ended.

    ``code`` is None if no image with it is in the dump. ``ctas`` are those that were running, by
    number; ``entries`` what their warps wait for, and where those stand that are not known to wait.
    """

    grid: Grid
    device: Device
    code: Code | None
    ctas: tuple[Cta, ...]
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """The kernel's name as it was loaded; empty if it is not known."""
        return "" if self.code is None else self.code.function.name

    @property
    def total(self) -> int:
        """CTAs of the grid."""
        return prod(self.grid.grid)

    @property
    def shared(self) -> int | None:
        """Bytes of shared memory of a CTA; None if that is not in the dump."""
        return next((len(c.shared) for c in self.ctas if c.shared is not None), None)

    @property
    def state(self) -> State:
        """What is known of it."""
        if not self.ctas:
            return "pending"
        if any(isinstance(e.wait, Trap) and e.wait.exception for e in self.entries):
            return "stopped"
        waiting = [is_waiting(e) for e in self.entries]
        if not any(waiting):
            return "open"
        return "hangs" if all(waiting) else "waits"


def is_waiting(entry: Entry) -> bool:
    """Whether its warps are known to wait, and the wait is not over."""
    return not entry.passing and not isinstance(entry.wait, Running | Sleep | Trap)


@dataclass(frozen=True)
class Lack:
    """What is not known, and how a next dump, or another option, would tell it."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}" if self.remedy else self.what


@dataclass(frozen=True)
class Autopsy:
    """What a dump says.

    ``launches``: the kernels that had not ended, by device and place in the dump. ``cycle``: groups
    of warps that wait for each other, if some do. ``lacks``: what is not known.
    """

    path: str
    driver: Driver | None
    devices: tuple[Device, ...]
    launches: tuple[Launched, ...]
    cycle: tuple[Group, ...]
    lacks: tuple[Lack, ...]

    @property
    def code(self) -> int:
        """The exit code: 1 if something hangs or was stopped, 0 if nothing was running, 3 if no
        more is known than where it stands."""
        states = {launch.state for launch in self.launches}
        if states & {"hangs", "waits", "stopped"}:
            return 1
        return 3 if states else 0


def autopsy(path: Path | str) -> Autopsy:
    """What a core dump of a GPU says.

    Raises:
        DumpError: it is no dump, or damaged.
        CubinError: nvdisasm is not there, or a kernel of the dump cannot be read.
    """
    dump = CoreDump(Path(path))
    codes = {grid: code for grid in dump.grids if (code := _code(dump, grid)) is not None}
    graph = wait_for(dump, {grid: code.function for grid, code in codes.items()})
    devices = {device.number: device for device in dump.devices}
    launches = tuple(
        Launched(
            grid, devices[grid.device], codes.get(grid),
            tuple(c for c in dump.ctas if c.grid is grid),
            tuple(e for e in graph.entries if e.groups[0].cta.grid is grid),
        )
        for grid in dump.grids
    )  # fmt: skip
    return Autopsy(
        str(path), dump.driver, dump.devices, launches, graph.cycle, tuple(_lacks(launches))
    )


def _code(dump: CoreDump, grid: Grid) -> Code | None:
    """The code of a kernel: that of the loaded cubin in which its first instruction lies."""
    for number, loaded in enumerate(dump.images):
        if loaded.relocated and loaded.device == grid.device:
            image = Image(loaded.data, f"{dump.path}: cubin {number}")
            symbol = image.symbol_at(grid.entry)
            function = function_at(image, grid.entry)
            if symbol is not None and function is not None:
                return Code(image, function, image.info(symbol))
    return None


def _lacks(launches: tuple[Launched, ...]) -> Iterator[Lack]:
    if any(launch.code is None for launch in launches):
        yield Lack(
            "the code of a kernel is not in the dump, so where its warps stand is not known",
            "leave skip_relocated_elf_images out of CUDA_COREDUMP_GENERATION_FLAGS",
        )
    ctas = [cta for launch in launches for cta in launch.ctas]
    if ctas and all(cta.shared is None for cta in ctas):
        yield Lack(
            "the dump has no shared memory (skip_shared_memory was set): the state of mbarriers is "
            "not known",
            "leave that flag out of CUDA_COREDUMP_GENERATION_FLAGS",
        )
    codes = [launch.code for launch in launches if launch.code is not None]
    if any(not any(i.lines for i in code.function.code.values()) for code in codes):
        yield Lack(
            "the machine code has no source lines",
            "compile with -lineinfo (nvcc, NVRTC); then the dump holds the PTX as well",
        )
