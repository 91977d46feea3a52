"""Kinds of PTX instructions that synchronise or access memory, and the SASS made of each.

A row: the PTX (opcode), the SASS (opcode and operands), the roles, and the section of the PTX ISA.
The SASS forms are those of ptxas 12.9 to 13.5 for sm_90a and sm_100a, each measured on a kernel
with this one instruction.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from tilesim.records import dataclass

#: ``acquire``: accesses behind it in the text may not be before it. ``release``: accesses before it
#: may not be behind it. ``proxy``: as release, for accesses to shared memory only
Role = Literal["acquire", "release", "proxy"]


@dataclass(frozen=True)
class Kind:
    """A kind of instruction.

    ``absent``: why a PTX instruction of it can have no SASS of its own; empty: it must have some.
    ``expanded``: why the places of its SASS say nothing of order; empty: they do. ``access``: it
    is a plain access to memory. ``idempotent``: of two without anything between them, one is
    enough. ``unordered``: two of this kind are not ordered by each other.
    """

    name: str
    ptx: str
    sass: str
    roles: frozenset[Role]
    section: str
    absent: str = ""
    expanded: str = ""
    access: bool = False
    idempotent: bool = False
    unordered: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether it synchronises, and its place says with what."""
        return not self.access and not self.expanded and self.absent != _HINT


_HINT = "it is a hint"


def _kind(
    name: str, section: str, ptx: str, sass: str, roles: str = "", *, absent: str = "",
    expanded: str = "", access: bool = False, idempotent: bool = False, unordered: bool = False,
) -> Kind:  # fmt: skip
    known: dict[str, Role] = {"a": "acquire", "r": "release", "p": "proxy"}
    return Kind(
        name, ptx, sass, frozenset(known[one] for one in roles), section, absent, expanded,
        access, idempotent, unordered,
    )  # fmt: skip


_NOTHING = r"(?!)"
_WEAK = r"(?:volatile\.|mmio\.|weak\.|relaxed\.\w+\.|L\w+::\w+\.|nc\.|\w*cache\w*\.)*"
_LANES = "ptxas places it by where the lanes of a warp converge"
_ORDERED = "SASS keeps that order without an instruction"

#: the first row that matches is the kind of an instruction
KINDS: tuple[Kind, ...] = (
    _kind("mbarrier.init", "9.7.13.15.9", r"mbarrier\.init", r"SYNCS\.EXCH", unordered=True),
    _kind("mbarrier.inval", "9.7.13.15.10", r"mbarrier\.inval", r"SYNCS\.CCTL"),
    _kind(
        "mbarrier.wait", "9.7.13.15.16", r"mbarrier\.(?:test|try)_wait", r"SYNCS\.PHASECHK", "a"
    ),
    _kind(
        "mbarrier.arrive", "9.7.13.15.13",
        r"mbarrier\.(?:arrive|expect_tx|complete_tx)|cp\.async\.mbarrier\.arrive",
        r"SYNCS\.(?:ARRIVE|CAS)|ARRIVES", "r",
    ),
    _kind("bulk.commit", "9.7.9.25.4.2", r"cp\.async\.bulk\.commit", r"UTMACMDFLUSH"),
    _kind("bulk.wait", "9.7.9.25.4.3", r"cp\.async\.bulk\.wait", r"DEPBAR\.LE SB0", "a"),
    _kind(
        "bulk.prefetch", "9.7.9.25.4.4", r"cp\.async\.bulk\.prefetch", r"UTMAPF|UBLKPF",
        absent=_HINT,
    ),
    _kind(
        "tensormap.prefetch", "9.7.9.15", r"prefetchu?\.\S*tensormap", r"UTMACCTL\.PF",
        absent=_HINT,
    ),
    _kind(
        "bulk.peer", "9.7.9.25.4.1", r"cp\.async\.bulk\.shared::cluster\.shared::cta",
        r"UBLKCP\.S\.S",
    ),
    _kind(
        "bulk.load", "9.7.9.25.5.2", r"cp\.async\.bulk\.(?:tensor\S*)?\S*shared::\w+\S*\.global",
        r"UTMALDG|UBLKCP\.S",
    ),
    _kind(
        "bulk.store", "9.7.9.25.5.2", r"cp\.(?:reduce\.)?async\.bulk\.\S*global\S*\.shared",
        r"UTMASTG|UTMAREDG|UBLKCP\.G|UBLKRED",
    ),
    _kind(
        "bulk.reduce", "9.7.9.25.4.1", r"cp\.reduce\.async\.bulk", r"UTMAREDG|UBLKRED"
    ),
    _kind("cp.async.commit", "9.7.9.25.3.2", r"cp\.async\.commit", r"LDGDEPBAR"),
    _kind("cp.async.wait", "9.7.9.25.3.3", r"cp\.async\.wait", r"DEPBAR\.LE SB0", "a"),
    _kind("cp.async", "9.7.9.25.3.1", r"cp\.async\.c[ag]", r"LDGSTS", unordered=True),
    _kind("wgmma.fence", "9.7.15.7.1", r"wgmma\.fence", r"WARPGROUP\.ARRIVE"),
    _kind(
        "wgmma", "9.7.15.5", r"wgmma\.mma", r"[HQIB]GMMA\.\S+ (?!RZ, gdesc\[URZ\])",
        unordered=True,
    ),
    _kind(
        "wgmma.commit", "9.7.15.7.2", r"wgmma\.commit", r"[HQIB]GMMA\.\S+ .*gsb0",
        absent="it is the operand gsb0 of the last HGMMA of the group",
    ),
    _kind("wgmma.wait", "9.7.15.7.3", r"wgmma\.wait", r"WARPGROUP\.DEPBAR", "a"),
    _kind("tcgen05.mma", "9.7.16.10", r"tcgen05\.mma", r"UTC\w*MMA"),
    _kind("tcgen05.commit", "9.7.16.12", r"tcgen05\.commit", r"UTCBAR"),
    _kind("tcgen05.cp", "9.7.16.9", r"tcgen05\.cp", r"UTCCP"),
    _kind("tcgen05.shift", "9.7.16.9", r"tcgen05\.shift", r"UTCSHIFT"),
    _kind("tcgen05.ld", "9.7.16.8", r"tcgen05\.ld", r"LDTM", unordered=True),
    _kind("tcgen05.st", "9.7.16.8", r"tcgen05\.st", r"STTM", unordered=True),
    _kind(
        "tcgen05.wait.ld", "9.7.16.8.5", r"tcgen05\.wait::ld", _NOTHING,
        absent="it is a wait for a scoreboard, in the control bits",
    ),
    _kind("tcgen05.wait.st", "9.7.16.8.5", r"tcgen05\.wait::st", r"FENCE\.VIEW\.ASYNC\.T"),
    _kind("tcgen05.fence", "9.7.16.11", r"tcgen05\.fence", _NOTHING, absent=_ORDERED),
    _kind(
        "tcgen05.alloc", "9.7.16.7", r"tcgen05\.alloc", r"UTCATOMSWS\S*\.FIND",
        expanded="ptxas makes a loop of it",
    ),
    _kind(
        "tcgen05.dealloc", "9.7.16.7", r"tcgen05\.dealloc", r"UTCATOMSWS\S*\.AND",
        expanded="ptxas makes a loop of it",
    ),
    _kind(
        "tcgen05.relinquish", "9.7.16.7", r"tcgen05\.relinq", r"UVIRTCOUNT",
        expanded="ptxas makes a sequence of it",
    ),
    _kind(
        "bar", "9.7.13.1", r"(?:bar|barrier)(?:\.cta)?\.(?:sync|red)", r"BAR\.(?:SYNC|RED)", "ar"
    ),
    _kind("bar.arrive", "9.7.13.1", r"(?:bar|barrier)(?:\.cta)?\.arrive", r"BAR\.ARV", "r"),
    _kind(
        "bar.warp.sync", "9.7.13.2", r"bar\.warp\.sync", r"WARPSYNC", absent=_LANES,
        expanded=_LANES,
    ),
    _kind(
        "barrier.cluster.arrive", "9.7.13.4", r"barrier\.cluster\.arrive", r"UCGABAR_ARV", "r",
    ),
    _kind(
        "barrier.cluster.wait", "9.7.13.4", r"barrier\.cluster\.wait", r"UCGABAR_WAIT", "a",
    ),
    _kind(
        "fence.mbarrier_init", "9.7.13.5", r"fence\.mbarrier_init", _NOTHING, absent=_ORDERED
    ),
    _kind(
        "fence.acquire.cta", "9.7.13.5", r"fence\.acquire\.cta", r"MEMBAR", "a", absent=_ORDERED
    ),
    _kind(
        "fence.sync_restrict", "9.7.13.5", r"fence\.(?:acquire|release)\.sync_restrict", r"MEMBAR",
        absent=_ORDERED,
    ),
    _kind(
        "fence.proxy.async.acquire", "9.7.13.5", r"fence\.proxy\.async::generic\.acquire", _NOTHING,
        absent=_ORDERED,
    ),
    _kind(
        "fence.proxy.async", "9.7.13.5", r"fence\.proxy\.async", r"FENCE\.VIEW\.ASYNC(?!\.T)", "p",
        idempotent=True, unordered=True,
    ),
    _kind(
        "fence.proxy.tensormap", "9.7.13.5", r"fence\.proxy\.tensormap",
        r"UTMACCTL\.IV|MEMBAR", "ar", idempotent=True,
    ),
    _kind("fence.proxy.alias", "9.7.13.5", r"fence\.proxy\.alias", r"MEMBAR", "ar"),
    _kind(
        "fence.acquire", "9.7.13.5", r"fence\.acquire\.(?:gpu|cluster|sys)", r"CCTL\.IVALL|MEMBAR",
        "a", idempotent=True,
    ),
    _kind(
        "fence", "9.7.13.5", r"fence\.(?:acq_rel|sc|release|acquire)|membar", r"MEMBAR", "ar",
        idempotent=True,
    ),
    _kind(
        "setmaxnreg", "9.7.19.5", r"setmaxnreg", r"USETMAXREG", expanded="ptxas makes a loop of it",
    ),
    _kind("griddepcontrol.wait", "9.7.13.13", r"griddepcontrol\.wait", r"ACQBULK", "a"),
    _kind("griddepcontrol.launch", "9.7.13.13", r"griddepcontrol\.launch", r"PREEXIT", "r"),
    _kind(
        "clusterlaunchcontrol", "9.7.13.16", r"clusterlaunchcontrol\.try", r"UGETNEXTWORKID"
    ),
    _kind("st.async", "9.7.9.12", r"(?:st|red)\.async", r"STAS|REDAS|USTGR|URED"),
    _kind("ld.acquire", "9.7.9.8", r"ld\.acquire", r"LD[SG]?[. ]", "a"),
    _kind("st.release", "9.7.9.11", r"st\.release", r"ST[SG]?[. ]", "r"),
    _kind(
        "atom.acq_rel", "9.7.13.6", r"(?:atom|red)\.\S*acq_rel", r"ATOM|RED[GS]?[. ]", "ar"
    ),
    _kind("atom.acquire", "9.7.13.6", r"(?:atom|red)\.\S*acquire", r"ATOM|RED[GS]?[. ]", "a"),
    _kind("atom.release", "9.7.13.6", r"(?:atom|red)\.\S*release", r"ATOM|RED[GS]?[. ]", "r"),
    # accesses
    _kind("ld.shared", "9.7.9.8", rf"ld\.{_WEAK}shared|ldmatrix", r"LDS|LDSM|LD[. ]", access=True),
    _kind("st.shared", "9.7.9.11", rf"st\.{_WEAK}shared|stmatrix", r"STS|STSM|ST[. ]", access=True),
    _kind("ld.global", "9.7.9.8", rf"ldu?\.{_WEAK}global", r"LDG|LD[. ]", access=True),
    _kind("st.global", "9.7.9.11", rf"st\.{_WEAK}global", r"STG|ST[. ]", access=True),
    _kind("ld.generic", "9.7.9.8", rf"ld\.{_WEAK}[vbusf]\d", r"LD[SG]?[. ]", access=True),
    _kind("st.generic", "9.7.9.11", rf"st\.{_WEAK}[vbusf]\d", r"ST[SG]?[. ]", access=True),
    _kind("atom", "9.7.13.6", r"atom\.|red\.", r"ATOM|RED[GS]?[. ]", access=True),
)  # fmt: skip

BY_NAME = {one.name: one for one in KINDS}
#: kinds of accesses that only read
LOADS = frozenset({"ld.shared", "ld.global", "ld.generic"})
#: kinds of accesses to shared memory, or that may be
SHARED = frozenset({"ld.shared", "st.shared", "ld.generic", "st.generic", "atom"})
#: kinds of which ``MEMBAR`` and ``FENCE`` can be a part, by their scope or proxies
WITH_FENCE = frozenset(
    {
        "mbarrier.arrive", "mbarrier.wait", "barrier.cluster.arrive", "barrier.cluster.wait",
        "fence", "fence.acquire", "fence.proxy.async", "fence.proxy.alias", "fence.proxy.tensormap",
        "st.release", "ld.acquire", "atom.acq_rel", "atom.acquire", "atom.release",
        "tcgen05.wait.st", "bar", "fence.sync_restrict", "st.async",
    }
)  # fmt: skip
#: SASS that synchronises, by which inserted instructions are seen
SYNCHRONISES = re.compile(
    r"SYNCS|ARRIVES|UTMA(?!PF|CCTL\.PF)|UBLK(?!PF)|DEPBAR\.LE|LDGDEPBAR|LDGSTS|WARPGROUP|"
    r"[HQIB]GMMA|UTC\w*MMA|UTCBAR|UTCCP|UTCSHIFT|LDTM|STTM|BAR\.|UCGABAR|FENCE|MEMBAR|"
    r"ACQBULK|PREEXIT|UGETNEXTWORKID|STAS|REDAS"
)

#: PTX that accesses memory or synchronises ...
_OF_MEMORY = re.compile(
    r"(?:ldu?|st|stmatrix|ldmatrix|atom|red|multimem|wmma\.(?:load|store)|tensormap|cp|mbarrier|"
    r"fence|membar|bar|barrier|tcgen05|wgmma|clusterlaunchcontrol|griddepcontrol|setmaxnreg|"
    r"suld|sust|sured|tex|tld4|discard)(?:\.|$)"
)
#: ... but for memory of a thread's own, constants, and answers that are in registers already
_OWN = re.compile(
    r"(?:ld|st)\.\S*(?:param|local|const)|mbarrier\.pending_count|"
    r"clusterlaunchcontrol\.query_cancel"
)

_PTX = tuple((one, re.compile(one.ptx)) for one in KINDS)
_SASS = {one.name: re.compile(one.sass) for one in KINDS}


@cache
def of_ptx(opcode: str) -> Kind | None:
    """The kind of a PTX opcode with its qualifiers; None of what neither synchronises nor accesses
    memory of other threads."""
    return next((kind for kind, pattern in _PTX if pattern.match(opcode)), None)


@cache
def hands_on(opcode: str) -> bool:
    """Whether a PTX opcode of a kind that releases does so: ``mbarrier.expect_tx`` is relaxed and
    completes no phase, so that nothing is handed on by it."""
    return not opcode.startswith("mbarrier.expect_tx")


@cache
def is_left_out(opcode: str) -> bool:
    """Whether a PTX opcode accesses memory or synchronises, and is of no kind."""
    return bool(_OF_MEMORY.match(opcode)) and not _OWN.match(opcode) and of_ptx(opcode) is None


@cache
def is_sass_of(kind: str, text: str) -> bool:
    """Whether a SASS instruction (opcode and operands, without guard) can be one of a kind."""
    return _SASS[kind].match(text) is not None
