"""One fault each in further kernels: the verdict, the rule, one headline, and its first line."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from typing import NamedTuple

import pytest

from tilesim import check
from tilesim.dsl.kernel import Kernel
from tilesim.mistakes import diagnose as explain
from tilesim.report.text import fold

from . import variants, variants_blackwell


class Fault(NamedTuple):
    """A kernel with a fault: the rule of the first finding, and a part of its cause."""

    kernel: Kernel
    fault: str
    rule: str
    cause: str

    def __str__(self) -> str:
        return f"{self.kernel.name}-{self.fault}"


FAULTS = (
    Fault(variants.persistent, "parity", "deadlock", "has not waited for phase 0"),
    Fault(variants.two_queries, "guard", "race", "waits on k_empty[0] a second time, and"),
    Fault(variants.two_queries, "query", "race", "slot 1 is accessed after a wait on q_full[0]"),
    Fault(variants.two_queries, "meeting", "race", "arrives on v_empty[0] for group 1 (warp 4)"),
    Fault(variants.ring_of_stores, "alone", "race", "nothing makes warp 1 wait for that"),
    Fault(variants.copies_by_lanes, "warps", "over-arrival", "for the copies of that lane"),
    Fault(variants.copies_by_lanes, "slot", "deadlock", "names another slot than what was used"),
    Fault(variants.quarters, "part", "race", "complete the same phase of CTA 0 full[0] fill the"),
    Fault(variants.neighbours, "relaxed", "race", "is relaxed: it hands nothing on"),
    Fault(variants.in_order, "before", "race", "waits for a flag for CTA 1 warp 1 as well"),
    Fault(variants.in_order, "behind", "race", "sets a flag for CTA 0 warp 1 as well"),
    Fault(variants.in_order, "scope", "race", "has scope cta, and the other side is in another"),
    Fault(variants.in_order, "skip", "deadlock", "polls turn for another value than it is left"),
    Fault(variants.one_in_flight, "fence", "wgmma-order", "no wgmma.fence comes between"),
    Fault(variants.one_in_flight, "first", "race", "hands empty[2] back before it has waited"),
    Fault(variants.one_in_flight, "last", "wgmma-order", "no wait_group 0 follows the last"),
    Fault(variants.maps_by_turns, "acquire", "proxy-fence", "acquire comes before this use"),
    Fault(variants.two_lives, "early", "init-visibility", "wait for all users before it"),
    Fault(variants.behind_a_grid, "none", "race", "makes the kernel wait for earlier grids"),
    Fault(variants.behind_a_grid, "late", "race", "griddepcontrol.wait comes after what it is for"),
    Fault(variants.across_warps, "warp", "race", "nothing that warp 0 executes before its access"),
    Fault(variants.numbers_drawn, "slot", "race", "is accessed after a wait on CTA 0 full[1]"),
    Fault(variants.own_state, "wrap", "deadlock", "the slot of its arrival starts over before it"),
    Fault(variants.own_state, "always", "deadlock", "has not waited for phase 0"),
    Fault(variants.query_per_tile, "early", "race", "arrival on q_empty[0] hands on what read"),
    Fault(variants_blackwell.pair_of_ctas, "own", "deadlock", "on the barrier of another CTA"),
    Fault(variants_blackwell.pair_of_ctas, "free", "tmem-lifetime", "wait for epilogue (CTA 0"),
    Fault(variants_blackwell.scores_in_place, "begin", "uninitialised-barrier",
          "wait for the initialisation of the barriers"),
    Fault(variants_blackwell.scores_in_place, "unasked", "tcgen05-order", "no warp waits for it"),
    Fault(variants_blackwell.scores_in_place, "loading", "tcgen05-order",
          "no tcgen05.wait comes between this tcgen05.ld and tcgen05.st"),
    Fault(variants_blackwell.scores_in_place, "ahead", "deadlock", "this wait passes at once"),
    Fault(variants_blackwell.two_answers, "slot", "race", "passes a second time on CTA 0 full[0]"),
    Fault(variants_blackwell.two_answers, "none", "race", "waits for nothing that scheduler"),
)  # fmt: skip
RIGHT = tuple({fault.kernel.name: fault.kernel for fault in FAULTS}.values())


def _line(fault: Fault) -> int:
    """The line that is marked with the fault's name."""
    lines, first = inspect.getsourcelines(fault.kernel.function)
    (place,) = [n for n, text in enumerate(lines) if re.search(rf"# @.*\b{fault.fault}\b", text)]
    return first + place


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_its_cause_is_the_headline(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "RAISES", True)
    report = check(fault.kernel.build(fault=fault.fault))
    assert report.verdict == "failed"
    first = report.findings[0]
    assert (first.rule, first.locations[0].line) == (fault.rule, _line(fault)), report
    assert fault.cause in first.cause
    assert len(fold(report.findings)) == 1


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.name)
def test_without_it_the_kernel_is_proved(kernel: Kernel) -> None:
    report = check(kernel.build())
    assert (report.verdict, report.findings) == ("proved", ()), report


@pytest.mark.parametrize(
    ("kernel", "fault", "repair"),
    [
        (variants.persistent, "parity", "phase (n1 // 3) & 1 instead of"),
        (variants.two_queries, "guard", "barrier v_empty[i % 2] instead of k_empty[i % 2]"),
        (variants.ring_of_stores, "alone", "barrier.sync before st"),
        (variants.one_in_flight, "last", "wgmma.wait_group before tile.store"),
        (variants.maps_by_turns, "acquire", "fence.proxy.tensormap::generic.acquire before"),
        (variants_blackwell.pair_of_ctas, "own", "barrier full[i % 2].at(0) instead of"),
    ],
    ids=lambda value: value.name if isinstance(value, Kernel) else None,
)
def test_the_real_fix_is_suggested_first(kernel: Kernel, fault: str, repair: str) -> None:
    repairs = check(kernel.build(fault=fault), suggest=timedelta(minutes=10)).repairs
    assert repairs is not None
    first = repairs.found[0]
    assert first.what.startswith(repair), repairs
    assert check(first.program).verdict == "proved"
