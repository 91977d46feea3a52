"""Kernels in core dumps of GPUs: their PTX, if it is there, with the launch that was running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tilesim.autopsy.core_dump import CoreDump, Grid
from tilesim.autopsy.find_ptx import FoundPtx, Loaded, Missing, find_ptx, loaded
from tilesim.autopsy.launch import Rebuilt, rebuild, with_contents, with_maps_apart
from tilesim.cubin.image import Image
from tilesim.errors import NoKernelError, TargetError
from tilesim.ir.mir import Mir
from tilesim.loader.machine_code import ClosedKernel, EmbeddedPtx, symbol_of
from tilesim.loader.ptx import PtxKernel
from tilesim.ptx.demangle import readable, shown
from tilesim.ptx.launch import Map, Struct
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import LaunchError, PtxError
from tilesim.records import replace
from tilesim.sim.machine.simulate import Simulation


def kernels(
    path: Path, entry: str | None = None, number: str | None = None
) -> list[tuple[str, PtxKernel | ClosedKernel]]:
    """The launches that had not ended when a GPU was dumped, each with its name.

    ``entry``: only launches of this kernel; ``number``: only this of its launches, from 1 on. A
    name ends with the number if there are several. Of a kernel without PTX there is machine code.

    Raises:
        DumpError, CubinError: it is no dump, or damaged.
        TargetError: there is no such launch, or what is missing of it.
    """
    dump = CoreDump(path)
    running = [(grid, kernel) for grid in dump.grids if (kernel := _kernel(dump, grid)) is not None]
    several = Counter(kernel.name for _, kernel in running)
    names, seen = shown(several), Counter[str]()
    found: list[tuple[str, PtxKernel | ClosedKernel]] = []
    for grid, kernel in running:
        name = kernel.name
        seen[name] += 1
        if entry not in (None, name, readable(name)) or number not in (None, str(seen[name])):
            continue
        label = f"{path}::{names[name]}"
        if several[name] > 1:
            label += f"[launch={seen[name]}]"
        found.append((label, _checkable(dump, grid, kernel)))
    if not found:
        has = ", ".join(names.values())
        if not has:
            raise NoKernelError(f"{path}: no kernel of a program was running")
        raise NoKernelError(f"{path} has no launch of {entry or number}; it has {has}")
    return found


def _kernel(dump: CoreDump, grid: Grid) -> Loaded | None:
    """The kernel of a launch; None if it is the driver's, or its code is not in the dump."""
    found = None if grid.system else dump.image_of(grid)
    if found is None:
        return None
    image = Image(found.data, f"{dump.path}: the cubin of grid {grid.id}")
    symbol = image.symbol_at(grid.entry)
    return None if symbol is None else loaded(dump, grid, image, image.info(symbol))


def _checkable(dump: CoreDump, grid: Grid, kernel: Loaded) -> PtxKernel | ClosedKernel:
    """A launch with its PTX, or without it what there is."""
    place = str(dump.path)
    image = kernel.unrelocated or kernel.image
    symbol = symbol_of(image, kernel.name)
    ptx = find_ptx(kernel)
    if isinstance(ptx, Missing):
        if symbol is None:
            raise TargetError(f"{place}: {ptx.why}")
        return ClosedKernel(place, image, symbol)
    rebuilt = rebuild(dump, grid, kernel, ptx)
    if isinstance(rebuilt, Missing):
        raise TargetError(f"{place}: {rebuilt.why}")
    embedded = EmbeddedPtx(
        ptx.text, f"{place}.{ptx.file}" if kernel.image.ptx else ptx.file, ptx.module.target,
        (kernel.name,), image,
    )  # fmt: skip
    rebuilt = _with_contents(dump, ptx, rebuilt)
    about = "; ".join(_about(ptx, rebuilt))
    launch = replace(rebuilt.launch, about=about)
    return PtxKernel(place, launch, place, embedded)


def _with_contents(dump: CoreDump, ptx: FoundPtx, rebuilt: Rebuilt) -> Rebuilt:
    """The launch with what buffers held in the dump that the kernel never writes; as it is if the
    kernel is not supported, which the check says."""
    try:
        rebuilt, program = _lowered(ptx, rebuilt)
    except (LaunchError, PtxError):
        return rebuilt
    looked = Simulation(program, numbers=False, strict="practice")
    return with_contents(rebuilt, dump, looked.written, looked.holds)


def _lowered(ptx: FoundPtx, rebuilt: Rebuilt) -> tuple[Rebuilt, Mir]:
    try:
        return rebuilt, lower(ptx.module, ptx.entry, rebuilt.launch)
    except LaunchError:
        if not any(isinstance(p, Map | Struct) for p in rebuilt.launch.params):
            raise
    apart = with_maps_apart(rebuilt)
    return apart, lower(ptx.module, ptx.entry, apart.launch)


def _about(ptx: FoundPtx, rebuilt: Rebuilt) -> Iterator[str]:
    """What reports say of the launch: that it is the dump's, and what that does not say."""
    yield rebuilt.launch.about
    if not ptx.certain:
        yield f"its PTX is {ptx.file}, {ptx.evidence}"
    yield from (one.text for one in rebuilt.assumed)
