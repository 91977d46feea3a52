"""The inventory of a kernel's machine code: its barriers, what works on them, what it needs.

It is no proof. It says what stands in the code, and compares numbers that stand there: what an
mbarrier expects with what arrives, bytes that are expected with bytes that are copied, the counts
of a named barrier, registers that are asked for (`observations`). What cannot be told is said so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from tilesim.cubin.barrier_sites import (
    ARRIVES,
    COMPLETES,
    EXPECTS,
    BarrierSites,
    Kind,
    NamedSite,
    RegisterSite,
    Site,
    Work,
)
from tilesim.cubin.disassembly import disassemble
from tilesim.cubin.image import Image, KernelInfo, KernelParameter, Symbol, Triple
from tilesim.cubin.observations import Observation, arrivals_at, bytes_at, counts_of, registers_of
from tilesim.cubin.sass import Function
from tilesim.records import dataclass
from tilesim.wording import count

#: seconds that the inventory of a kernel may take
SECONDS = 20.0
#: bytes of an mbarrier
_MBARRIER = 8


@dataclass(frozen=True)
class MbarrierRow:
    """Mbarriers that the same instructions work on: one, or the stages of a ring.

    ``base`` is the address of the first one, in bytes of the CTA's shared memory, ``stride`` the
    bytes from one to the next (0 of one alone), ``stages`` how many. ``counts``: the arrivals that
    a phase expects, by the word that initialises it; None is not known. ``sites`` are all
    instructions that may work on it, in the order of the code. ``bytes`` is None where no bytes are
    expected and nothing is copied.
    """

    base: int
    stride: int
    stages: int
    counts: tuple[int, ...] | None
    sites: tuple[Site, ...]
    arrivals: Observation
    bytes: Observation | None

    def of(self, *kinds: Kind) -> tuple[Site, ...]:
        """Its instructions of some kinds."""
        return tuple(site for site in self.sites if site.kind in kinds)


@dataclass(frozen=True)
class NamedBarrierRow:
    """A named barrier, by its number, and what comes to it."""

    number: int
    sites: tuple[NamedSite, ...]
    counts: Observation


@dataclass(frozen=True)
class Inventory:
    """What stands in the machine code of a kernel; no proof of anything.

    ``block`` is the size that is required (``.reqntid``), ``most_threads`` the largest
    (``.maxntid``), taken for the size of the block where that is not required. ``parameters`` have
    ``parameter_bytes`` together. ``static_shared`` counts what the system takes too (the first
    1024 bytes from sm_90 on), ``least_dynamic_shared`` is what a launch must give in addition for
    the addresses that are known. ``unplaced``: instructions on mbarriers whose address is not
    known, or that belong to no row. ``unnumbered``: of named barriers whose number is not known.
    ``cluster_arrives``, ``cluster_waits``: places of the instructions of the cluster's barrier;
    ``grid_waits`` and ``grid_triggers`` of ``griddepcontrol.wait`` and ``.launch_dependents``.
    ``unknown``: why some of it is not known, each a sentence.
    """

    kernel: str
    arch: str
    block: Triple | None
    most_threads: Triple | None
    cluster: Triple | None
    registers: int | None
    parameters: tuple[KernelParameter, ...]
    parameter_bytes: int
    static_shared: int
    least_dynamic_shared: int
    mbarriers: tuple[MbarrierRow, ...]
    unplaced: tuple[Site, ...]
    named_barriers: tuple[NamedBarrierRow, ...]
    unnumbered: tuple[NamedSite, ...]
    register_sites: tuple[RegisterSite, ...]
    register_pool: Observation | None
    cluster_arrives: tuple[int, ...]
    cluster_waits: tuple[int, ...]
    try_cancels: tuple[int, ...]
    grid_waits: tuple[int, ...]
    grid_triggers: tuple[int, ...]
    unknown: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether each instruction on a barrier is in a row, and all control flow is known."""
        return not (self.unplaced or self.unnumbered or self.unknown)

    @property
    def observations(self) -> tuple[Observation, ...]:
        """All comparisons, in the order of the rows."""
        of_mbarriers = [one for row in self.mbarriers for one in (row.arrivals, row.bytes)]
        of_named = [row.counts for row in self.named_barriers]
        found = (*of_mbarriers, *of_named, self.register_pool)
        return tuple(one for one in found if one is not None)


def inventory(image: Image, function: Symbol, *, seconds: float = SECONDS) -> Inventory:
    """What stands in the machine code of a kernel.

    After ``seconds`` no further address is looked for: `Inventory.unknown` says so then.

    Raises:
        CubinError: the cubin is damaged, or nvdisasm is not there or cannot read it.
    """
    until = monotonic() + seconds
    info = image.info(function)
    (code,) = disassemble(image, (function,))
    block = _block(info, code)
    sites = BarrierSites(code, block, image.tables(function), until)
    works = list(sites.mbarriers())
    rows, unplaced = _rows(works)
    named = list(sites.named())
    unnumbered = tuple(site for site in named if site.numbers is None)
    threads = None if block is None else block[0] * block[1] * block[2]
    placed = [work.site for work in works if work.site.addresses]
    end = max((min(s.addresses or ()) + _MBARRIER for s in placed), default=0)
    registers = tuple(sites.registers())
    warps = None if sites.threads is None else sites.threads.warps
    return Inventory(
        kernel=function.name,
        arch=image.arch,
        block=info.block,
        most_threads=info.most_threads,
        cluster=info.cluster,
        registers=info.registers,
        parameters=info.parameters,
        parameter_bytes=max((one.offset + one.size for one in info.parameters), default=0),
        static_shared=info.shared,
        least_dynamic_shared=max(0, end - info.shared),
        mbarriers=rows,
        unplaced=unplaced,
        named_barriers=tuple(_named_rows(named, threads, len(unnumbered))),
        unnumbered=unnumbered,
        register_sites=registers,
        register_pool=registers_of(registers, info.registers, warps),
        cluster_arrives=sites.places("UCGABAR_ARV"),
        cluster_waits=sites.places("UCGABAR_WAIT"),
        try_cancels=sites.places("UGETNEXTWORKID"),
        grid_waits=sites.places("ACQBULK"),
        grid_triggers=sites.places("PREEXIT"),
        unknown=tuple(_unknown(code, block is None and bool(works or named), sites.late, seconds)),
    )


def _block(info: KernelInfo, code: Function) -> Triple | None:
    """The threads of a CTA: those that are required, or the most, which launches mostly have."""
    if info.block is not None or info.most_threads is None:
        return info.block
    planes = ("SR_TID.Y", "SR_TID.Z")
    if any(text in planes for one in code.code.values() for text in one.operands):
        return None  # the shape of the block is not known
    return info.most_threads


def _unknown(
    code: Function, unsized: bool, late: bool, seconds: float
) -> Iterator[str]:  # fmt: skip
    if code.unknown:
        yield f"where {count(len(code.unknown), 'branch', 'branches')} can lead is not known"
    outside = sum(one.base == "CALL" and one.target is None for one in code.code.values())
    if outside:
        yield f"what {count(outside, 'call')} by address does is not known"
    if unsized:
        yield "the size of the block is not in the cubin: how many threads arrive is not known"
    if late:
        yield f"after {seconds:g} s no further address was looked for"


# ---------------------------------------------------------------------- rows


def _rows(works: Sequence[Work]) -> tuple[tuple[MbarrierRow, ...], tuple[Site, ...]]:
    """The mbarriers, and the sites of which the mbarrier is not known."""
    inits = [work.site for work in works if work.site.kind == "init"]
    made = {place for site in inits for place in site.addresses or ()}
    if not inits or any(site.addresses is None for site in inits):
        made |= {place for work in works for place in work.site.addresses or ()}
    unplaced = tuple(
        work.site for work in works
        if work.site.addresses is None or not {*work.site.addresses} & made
    )  # fmt: skip
    arrivals = sum(site.kind in ARRIVES for site in unplaced)
    copies = sum(site.kind in EXPECTS | COMPLETES for site in unplaced)
    of = {
        place: [work for work in works if place in (work.site.addresses or ())]
        for place in sorted(made)
    }
    rows = []
    for places in _together(of):
        for base, stride, stages in _progressions(places):
            ring = [base + n * stride for n in range(stages)]
            sites = {work.site.pc: work.site for place in ring for work in of[place]}
            counts = _counts(of[base])
            rows.append(
                MbarrierRow(
                    base, stride, stages, counts, tuple(site for _, site in sorted(sites.items())),
                    _of_all([arrivals_at(of[p], p, counts, arrivals) for p in ring]),
                    _of_all([bytes_at(of[p], p, copies) for p in ring]),
                )
            )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: row.base)), unplaced


def _counts(works: Sequence[Work]) -> tuple[int, ...] | None:
    """What an mbarrier is initialised with, by those that work on it; None is not known."""
    inits = [work.site for work in works if work.site.kind == "init"]
    found: set[int] = set()
    for site in inits:
        if site.amounts is None:
            return None
        found |= {*site.amounts}
    return tuple(sorted(found)) if found else None


def _together(of: Mapping[int, Sequence[Work]]) -> Iterator[list[int]]:
    """The mbarriers that are stages of one: an instruction works on both, both expect as much, and
    the same is done with them."""
    by_site: dict[object, list[int]] = {}
    for place, works in of.items():
        kinds = frozenset(work.site.kind for work in works)
        for work in works:
            if work.site.kind != "init":
                key = work.site.pc, _counts(works), kinds
                by_site.setdefault(key, []).append(place)
    joined = {place: {place} for place in of}
    for places in by_site.values():
        whole = set().union(*(joined[place] for place in places))
        for place in whole:
            joined[place] = whole
    done: set[int] = set()
    for place, whole in joined.items():
        if place not in done:
            done |= whole
            yield sorted(whole)


def _progressions(places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Addresses as rings: the first one, the bytes from one to the next, how many."""
    start = 0
    while start < len(places):
        if start + 1 == len(places):
            yield places[start], 0, 1
            return
        stride = places[start + 1] - places[start]
        end = start + 2
        while end < len(places) and places[end] - places[end - 1] == stride:
            end += 1
        yield places[start], stride, end - start
        start = end


_Found = TypeVar("_Found", Observation, "Observation | None")


def _of_all(found: Sequence[_Found]) -> _Found:
    """What is said of the stages of a ring: that of the one of which least is consistent."""
    answers = ("differs", "cannot be told", "consistent")
    ranks = [len(answers) if one is None else answers.index(one.answer) for one in found]
    return found[ranks.index(min(ranks))]


def _named_rows(
    sites: Sequence[NamedSite], threads: int | None, unnumbered: int
) -> Iterator[NamedBarrierRow]:
    for number in sorted({n for site in sites for n in site.numbers or ()}):
        of = tuple(site for site in sites if number in (site.numbers or ()))
        yield NamedBarrierRow(number, of, counts_of(number, of, threads, unnumbered))
