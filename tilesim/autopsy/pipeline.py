"""From a core dump to what is known of it: which kernels had not ended, what they wait for, why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Literal

from tilesim.autopsy.compare import TIME_LIMIT, Match, compare
from tilesim.autopsy.core_dump import Absent, CoreDump, Cta, Device, Driver, Fault, Grid, target
from tilesim.autopsy.find_ptx import FoundPtx, Loaded, Missing, find_ptx, loaded
from tilesim.autopsy.launch import rebuild
from tilesim.autopsy.mbarrier_word import evidence
from tilesim.autopsy.ptx_lines import with_positions
from tilesim.autopsy.wait_for import Entry, wait_for
from tilesim.autopsy.waits import GridDependencyWait, Group, MbarrierWait, Trap, is_wait
from tilesim.cubin.disassembly import function_at
from tilesim.cubin.image import Image
from tilesim.cubin.sass import Function
from tilesim.dsl.kernel import public
from tilesim.ptx.demangle import readable
from tilesim.records import dataclass, replace

#: what is known of a launch: ``hangs``, all of its warps wait; ``waits``, some do, and of others
#: that is not known; ``stopped``, a warp has met an exception or a trap; ``pending``, no CTA of it
#: runs; ``open``, no wait is known
State = Literal["hangs", "waits", "stopped", "pending", "open"]


@dataclass(frozen=True)
class Diagnosis:
    """What a check of a kernel's PTX says of a launch that waits.

    ``ptx`` is what was found of it, ``match`` what the check says of the hang: None if there is no
    PTX, or no launch of it; ``missing`` is why.
    """

    ptx: FoundPtx | None
    match: Match | None
    missing: str = ""


@dataclass(frozen=True)
class Launched:
    """A launch that had not ended.

    ``kernel`` and ``function`` are its code, None if that is not in the dump. ``ctas`` are those
    that were running, by number; ``absent`` is how many were not. ``entries``: what their warps
    wait for, and where those stand that are not known to wait. ``diagnosis`` is None if no check
    was asked for, or nothing waits.
    """

    grid: Grid
    device: Device
    kernel: Loaded | None
    function: Function | None
    ctas: tuple[Cta, ...]
    absent: Absent
    entries: tuple[Entry, ...]
    diagnosis: Diagnosis | None = None

    @property
    def name(self) -> str:
        """The kernel's name as it was loaded; empty if it is not known."""
        return "" if self.kernel is None else self.kernel.name

    @property
    def shared(self) -> int | None:
        """Bytes of shared memory of a CTA; None if that is not in the dump."""
        return next((n for cta in self.ctas if (n := cta.shared_bytes) is not None), None)

    @property
    def state(self) -> State:
        """What is known of it."""
        if not self.ctas:
            return "pending"
        if any(isinstance(e.wait, Trap) for e in self.entries):
            return "stopped"
        waiting = [is_waiting(e) for e in self.entries]
        if not any(waiting):
            return "open"
        return "hangs" if all(waiting) else "waits"


def is_waiting(entry: Entry) -> bool:
    """Whether its warps are known to wait, and the wait is not over."""
    return not entry.passing and is_wait(entry.wait)


@dataclass(frozen=True)
class Lack:
    """What is not known, and how a next dump, or another option, would tell it."""

    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what


@dataclass(frozen=True)
class Autopsy:
    """What a dump says.

    ``launches``: the kernels that were running, by device and place in the dump. ``cycle``: groups
    of warps that wait for each other. ``faults``: exceptions of SMs. ``lacks``: what is unknown.
    """

    path: str
    driver: Driver | None
    devices: tuple[Device, ...]
    launches: tuple[Launched, ...]
    cycle: tuple[Group, ...]
    faults: tuple[Fault, ...]
    lacks: tuple[Lack, ...]

    @property
    def code(self) -> int:
        """The exit code: 1 if something hangs or was stopped, 0 if nothing was running, 3 if no
        more is known than where it stands."""
        states = {launch.state for launch in self.launches}
        if self.faults or states & {"hangs", "waits", "stopped"}:
            return 1
        return 3 if states else 0


@public
def autopsy(
    path: Path | str,
    ptx: Path | str | None = None,
    *,
    check: bool = True,
    time_limit: timedelta | float = TIME_LIMIT,
    suggest: timedelta | float | None = None,
) -> Autopsy:
    """What a core dump of a GPU says.

    Args:
        path: the dump, which may be compressed by gzip.
        ptx: where the PTX of its kernels is: a file, a program or a folder; else it is looked for
            in the dump, and in Triton's cache.
        check: look for the cause: check the PTX of what waits, with its launch as it is in the
            dump.
        time_limit: seconds, or a timedelta, that checking its kernels may take.
        suggest: look for repairs, for so many seconds or a timedelta.

    Raises:
        DumpError: it is no dump, or damaged; or nothing of ``ptx`` is PTX.
        CubinError: nvdisasm is not there, or a kernel of the dump cannot be read.
    """
    dump = CoreDump(Path(path))
    seconds = time_limit.total_seconds() if isinstance(time_limit, timedelta) else time_limit
    given = None if ptx is None else Path(ptx)
    diagnosing = _Diagnosing(dump, given, monotonic() + seconds, suggest) if check else None
    kernels = {g: k for g in dump.grids if not g.system and (k := _kernel(dump, g)) is not None}
    graph = wait_for(dump, {grid: function for grid, (_, function) in kernels.items()})
    ctas, groups, entries = defaultdict(list), defaultdict(list), defaultdict(list)
    for cta in dump.ctas:
        ctas[cta.grid].append(cta)
    for group in graph.groups:
        groups[group.cta.grid].append(group)
    for entry in graph.entries:
        entries[entry.groups[0].cta.grid].append(entry)
    launches = []
    for grid in dump.grids:
        kernel, function = kernels.get(grid, (None, None))
        launch = Launched(
            grid, dump.devices[grid.device], kernel, function, tuple(ctas[grid]),
            dump.absent(grid), tuple(entries[grid]),
        )  # fmt: skip
        if diagnosing is not None and any(map(is_waiting, launch.entries)):
            launch = replace(launch, diagnosis=diagnosing.of(launch, groups[grid]))
        launches.append(launch)
    return Autopsy(
        str(path), dump.driver, dump.devices, tuple(launches), graph.cycle, dump.faults,
        tuple(_lacks(dump.driver, launches)),
    )  # fmt: skip


@dataclass(frozen=True)
class _Diagnosing:
    """How causes are looked for: in which dump, ``until`` when."""

    dump: CoreDump
    given: Path | None
    until: float
    suggest: timedelta | float | None

    def of(self, launch: Launched, groups: Sequence[Group]) -> Diagnosis:
        """What a check says of a launch whose code is known."""
        assert launch.kernel is not None
        assert launch.function is not None
        ptx = find_ptx(launch.kernel, self.given)
        if isinstance(ptx, Missing):
            return Diagnosis(None, None, ptx.why)
        others = [o for o in self.dump.grids if o.device == launch.grid.device and o != launch.grid]
        dependent = bool(others) and any(
            isinstance(g.wait, GridDependencyWait) and g.wait.certain for g in groups
        )
        rebuilt = rebuild(self.dump, launch.grid, launch.kernel, ptx, dependent=dependent)
        if isinstance(rebuilt, Missing):
            return Diagnosis(ptx, None, rebuilt.why)
        name, left = readable(launch.name), self.until - monotonic()
        if left <= 0:
            return Diagnosis(ptx, None, f"the time was over before {name} was checked")
        module = with_positions(ptx.module, launch.name, ptx.text, launch.function)
        try:
            match = compare(
                self.dump, ptx, module, rebuilt, groups, time_limit=left, suggest=self.suggest
            )
        except Exception as error:  # what the dump says is worth having without a cause
            why = f"{type(error).__name__}: {error}"
            said = f"checking {name} ended by an error of tilesim, a bug to report ({why})"
            return Diagnosis(ptx, None, said)
        return Diagnosis(ptx, match)


def _kernel(dump: CoreDump, grid: Grid) -> tuple[Loaded, Function] | None:
    """A launch's kernel and its code, if they are in the dump."""
    found = dump.image_of(grid)
    if found is None:
        return None
    image = Image(found.data, f"{dump.path}: the cubin of grid {grid.id}")
    symbol, function = image.symbol_at(grid.entry), function_at(image, grid.entry)
    if symbol is None or function is None:
        return None
    return loaded(dump, grid, image, image.info(symbol)), function


#: the release of the driver from which on a dump says at which barrier a warp waits
_SAYS_BARRIERS = (590, 0)


def _lacks(driver: Driver | None, launches: Sequence[Launched]) -> Iterator[Lack]:
    skipped = () if driver is None else driver.skipped
    if any(o.ctas and o.kernel is None and not o.grid.system for o in launches):
        yield Lack("the code of a kernel is not in the dump: what its warps wait for is not known")
    ctas = [cta for launch in launches for cta in launch.ctas if cta.shared_bytes]
    if ctas and all(cta.shared is None for cta in ctas):
        flag = "skip_shared_memory" in skipped
        yield Lack(
            f"the dump has no shared memory{' (skip_shared_memory was set)' if flag else ''}: the "
            "state of mbarriers is not known",
            "leave that flag out of CUDA_COREDUMP_GENERATION_FLAGS" if flag else "",
        )
    waited = {
        o.device.arch for o in launches for e in o.entries if isinstance(e.wait, MbarrierWait)
    }
    for arch in sorted(waited):
        rests, name = evidence(arch), target(arch)
        if rests is None:
            yield Lack(f"the layout of mbarriers on {name} is not known: their state is not said")
        elif rests.startswith("inferred"):
            yield Lack(f"how mbarriers lie in memory on {name} is {rests}")
    if (
        driver is not None
        and driver.release < _SAYS_BARRIERS
        and any(is_waiting(e) and not e.wait.certain for o in launches for e in o.entries)
    ):
        yield Lack(
            "whether warps that have issued a barrier wait at it or have just passed it is not in "
            "the dump",
            "drivers from r590 on say it",
        )
    functions = [launch.function for launch in launches if launch.function is not None]
    if any(not any(i.lines for i in one.code.values()) for one in functions):
        yield Lack(
            "the machine code has no lines of the source",
            "compile with -lineinfo (nvcc, NVRTC), then the dump has the PTX as well",
        )
    for why in dict.fromkeys(o.diagnosis.missing for o in launches if o.diagnosis is not None):
        if why:
            yield Lack(why)
