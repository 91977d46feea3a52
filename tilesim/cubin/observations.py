"""What numbers of a kernel's machine code say of each other; observations, and no verdicts.

``consistent``: they agree in the plain reading, in which each warp that comes to a barrier does so
by one of its instructions in each phase. ``differs``: no number of these instructions makes them
agree. All else ``cannot be told``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import gcd
from typing import Literal

from tilesim.cubin.barrier_sites import (
    ARRIVES,
    COMPLETES,
    COUNTED,
    EXPECTS,
    NamedSite,
    RegisterSite,
    Work,
)
from tilesim.cubin.thread_sets import LANES
from tilesim.records import dataclass
from tilesim.wording import count

#: what two numbers of a kernel say of each other
Answer = Literal["consistent", "cannot be told", "differs"]

#: sums of arrivals that are looked at
_MOST_SUMS = 1 << 12
#: registers of an SM, of 32 bits
_REGISTER_FILE = 1 << 16


@dataclass(frozen=True)
class Observation:
    """What two numbers say of each other, and why, in a sentence."""

    answer: Answer
    why: str


def _untold(why: str) -> Observation:
    return Observation("cannot be told", why)


def arrivals_at(
    works: Sequence[Work], address: int, counts: Collection[int] | None, unplaced: int
) -> Observation:
    """What an mbarrier expects against what arrives on it in a phase.

    ``works`` are those that may work on it, ``unplaced`` is how many arrivals there are of which
    the mbarrier is not known.
    """
    if counts is None:
        return _untold("the count that it is initialised with is not known")
    if len(counts) != 1:
        listed = ", ".join(map(str, sorted(counts)))
        return _untold(f"it is initialised with more than one count ({listed})")
    (expected,) = counts
    arriving = [work for work in works if work.site.kind in ARRIVES]
    if unplaced:
        return _untold(f"the mbarrier of {count(unplaced, 'arrival')} is not known")
    if not arriving:
        if any(work.site.kind == "wait" for work in works):
            return Observation("differs", f"it expects {expected}, and nothing arrives on it")
        return _untold("nothing arrives on it, and nothing waits for it")
    amounts = [_each(work) for work in arriving]
    if None in amounts:
        return _untold("how much an arrival counts is not known")
    by_warp: dict[int, list[int]] = {}
    for work, amount in zip(arriving, amounts, strict=True):
        threads = work.at(address)
        if threads is None or not work.exact:
            return _untold("the threads that arrive are not known")
        for warp, lanes in _by_warp(threads):
            by_warp.setdefault(warp, []).append(lanes * (amount or 0))
    if any(work.repeats for work in arriving):
        return _untold("an arrival may be repeated in a phase")
    if not by_warp:
        return Observation("differs", f"it expects {expected}, and no thread comes to an arrival")
    if any(work.site.remote for work in arriving):
        total = sum(max(each) for each in by_warp.values())
        return _untold(f"it expects {expected}, and CTAs of the cluster arrive, each {total} times")
    if all(len({*each}) == 1 for each in by_warp.values()):
        total = sum(each[0] for each in by_warp.values())
        if total == expected:
            return Observation("consistent", f"it expects {expected}, and {total} arrive")
        if expected in _sums(by_warp.values()):
            return _untold(f"it expects {expected}, and {total} arrive, or more")
        return Observation("differs", f"it expects {expected}, and {total} arrive")
    all_together = sum(sum(each) for each in by_warp.values())
    sums = _sums(by_warp.values())
    if all_together == expected:
        return Observation("consistent", f"it expects {expected}, and {all_together} arrive")
    if expected in sums:
        return _untold(f"it expects {expected}, and at most {all_together} arrive")
    return Observation("differs", f"it expects {expected}, and at most {all_together} arrive")


def _each(work: Work) -> int | None:
    """How many arrivals each thread makes at a site; None is not known."""
    if work.site.kind not in COUNTED:
        return 1
    amounts = work.site.amounts
    return amounts[0] if amounts is not None and len(amounts) == 1 else None


def _by_warp(threads: int) -> Iterable[tuple[int, int]]:
    """The warps of threads, each with how many of them it has."""
    warp = 0
    while threads:
        lanes = (threads & (1 << LANES) - 1).bit_count()
        if lanes:
            yield warp, lanes
        threads >>= LANES
        warp += 1


def _sums(of: Iterable[Sequence[int]]) -> Collection[int]:
    """All sums to which each warp contributes by one or more of its instructions; all numbers if
    these are too many."""
    found = {0}
    for each in of:
        some = {0}
        for one in each:
            some |= {value + one for value in some}
            if len(some) > _MOST_SUMS:
                return range(1 << 20)
        some.discard(0)
        found = {value + one for value in found for one in some}
        if len(found) > _MOST_SUMS:
            return range(1 << 20)
    return found


def bytes_at(works: Sequence[Work], address: int, unplaced: int) -> Observation | None:
    """The bytes that an mbarrier expects against those that complete on it in a phase; None if
    there are none. ``unplaced``: how many copies there are of which the mbarrier is not known."""
    expecting = [work for work in works if work.site.kind in EXPECTS]
    completing = [work for work in works if work.site.kind in COMPLETES]
    if not expecting and not completing:
        return None
    if unplaced:
        return _untold(f"the mbarrier of {count(unplaced, 'copy', 'copies')} is not known")
    if not completing:
        sizes = {amount for work in expecting for amount in work.site.amounts or (1,)}
        if sizes == {0}:
            return Observation("consistent", "it expects 0 bytes, and nothing is copied")
        return Observation("differs", "it expects bytes, and nothing completes any on it")
    if any(work.site.remote for work in (*expecting, *completing)):
        return _untold("bytes come from other CTAs of the cluster, or are expected there")
    boxes = sum(work.site.kind == "tensor copy" for work in completing)
    if boxes:
        return _untold(f"the boxes of {count(boxes, 'copy', 'copies')} are in tensor maps")
    if not expecting:
        return Observation("differs", "bytes complete on it, and nothing expects any")
    expected = [_bytes(work, address) for work in expecting]
    copied = [_bytes(work, address) for work in completing]
    if None in expected or None in copied:
        return _untold("how many bytes there are is not known")
    wanted, given = [n for n in expected if n], [n for n in copied if n]
    total, sums = sum(given), _sums([given]) if given else {0}
    if len({*wanted}) == 1 and total in (wanted[0], sum(wanted)):
        return Observation("consistent", f"it expects {wanted[0]} bytes, and these are copied")
    if sum(wanted) == total:
        return Observation("consistent", f"it expects {total} bytes, and these are copied")
    unit = gcd(*given) if given else 0
    repeated = any(work.repeats for work in (*expecting, *completing))
    possible = {*(_sums([wanted]) if wanted else {0})}
    if any((repeated and unit and n % unit == 0) or n in sums for n in possible):
        return _untold(f"it expects {_either(wanted)} bytes, and {total} are copied, or a part")
    return Observation("differs", f"it expects {_either(wanted)} bytes, and {total} are copied")


def _either(values: Sequence[int]) -> str:
    return " or ".join(str(value) for value in sorted({*values})) or "0"


def _bytes(work: Work, address: int) -> int | None:
    """How many bytes all threads expect or complete at a site together; None is not known."""
    amounts, threads = work.site.amounts, work.at(address)
    if amounts is None or len(amounts) != 1 or threads is None or not work.exact:
        return None
    return amounts[0] * threads.bit_count()


def counts_of(
    number: int, sites: Sequence[NamedSite], threads: int | None, unnumbered: int
) -> Observation:
    """The counts of a named barrier against each other, and against the warps that come to it;
    ``threads`` is how many the CTA has."""
    named: set[int] = set()
    for site in sites:
        if site.whole:
            if threads is None:
                return _untold("it is of the whole CTA, the size of which is not known")
            named.add(-(-threads // LANES) * LANES)
        elif site.counts is None or len(site.counts) != 1:
            return _untold("how many threads it is of is not known")
        else:
            named.add(site.counts[0])
    others = unnumbered + sum(site.may_be_another for site in sites)
    if len(named) > 1:
        listed = " and ".join(map(str, sorted(named)))
        text = f"its instructions name {listed} threads"
        return _untold(f"{text}, if all are of it") if others else Observation("differs", text)
    (counted,) = named
    if others:
        return _untold(f"all name {counted} threads; the number of some is not known")
    if threads is None or any(site.warps is None or not site.exact for site in sites):
        return _untold(f"all name {counted} threads; those that come to it are not known")
    warps: set[int] = set()
    for site in sites:
        if site.by_number is None:
            warps |= {*(site.warps or ())}
        else:
            warps |= {*site.by_number.get(number, ())}
    coming = LANES * len(warps)
    if coming == counted:
        return Observation("consistent", f"it is of {counted} threads, and {coming} come to it")
    if coming > counted:
        return _untold(f"it is of {counted} threads, and {coming} can come to it")
    return Observation("differs", f"it is of {counted} threads, and {coming} come to it")


def registers_of(
    sites: Sequence[RegisterSite], registers: int | None, warps: int | None
) -> Observation | None:
    """The registers that the warps of a CTA have after ``setmaxnreg`` against those that it has
    been launched with; None without."""
    if not sites:
        return None
    if registers is None or warps is None:
        return _untold("the registers or the warps of a CTA are not known")
    pool = registers * warps * LANES
    of: dict[int, set[int]] = {}
    for site in sites:
        if site.registers is None or site.warps is None:
            return _untold("the registers or the warps of a setmaxnreg are not known")
        for warp in site.warps:
            of.setdefault(warp, set()).add(site.registers)
    if any(len(each) > 1 for each in of.values()):
        return _untold("a warp has more than one setmaxnreg")
    total = LANES * sum(min(of.get(warp, {registers})) for warp in range(warps))
    text = f"warps ask for {total} registers, and the CTA is launched with {pool}"
    if pool > _REGISTER_FILE:
        return Observation("differs", f"{text}, more than the {_REGISTER_FILE} of an SM")
    return Observation("consistent" if total <= pool else "differs", text)
