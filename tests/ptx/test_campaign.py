"""PTX of random programs, against the reference; and what memory holds at the start."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.ptx_mutants import Row, compared
from tests.campaign import tally
from tests.gpu import needs
from tests.ptx.campaign import back, judged
from tilesim import Builder, check, kernel, u32
from tilesim.checker import Report
from tilesim.gpu.compile import compile_ptx
from tilesim.gpu.describe_launch import describe
from tilesim.gpu.emit import emit
from tilesim.ir.program import Program
from tilesim.kernels.registry import cases
from tilesim.ptx.launch import Contents, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower


@needs.compiler
def test_random_programs() -> None:
    found = tally(judged, range(2000, 2015))
    assert not found.wrong
    assert found.said["proved, is right"] > 2
    assert found.said["failed, is wrong"] > 2


@kernel(warps=2)
def counted(k: Builder, *, met: bool = True) -> None:
    """A launch does its work if there were few before it, and counts itself.

    ``met``: the warps meet between what one writes and the other one reads."""
    data, launches = k.shared("data", u32, (32,)), k.tensor("launches", u32, (1,))
    number = k.var("number", 0, u32)
    with k.role("first", 0), k.if_(k.lane_id.eq(0)):
        k.mem.load(number, launches[0])
        with k.if_(number < 8):
            k.mem.store(data[0], number)
            k.mem.store(launches[0], number + 1)
    if met:
        k.sync_threads()
    with k.role("second", 1), k.if_(k.lane_id.eq(0)):
        k.mem.load(number, data[0])


def _read_back(program: Program, contents: Contents | None) -> Report:
    """A check of a program's PTX with other ``contents`` of its counter."""
    source = emit(program)
    launch = describe(source)
    params = tuple(
        replace(p, contents=contents) if isinstance(p, Pointer) and p.name == "launches" else p
        for p in launch.params
    )
    module = read(compile_ptx(source), "k.ptx")
    return check(lower(module, module.entries[0], replace(launch, params=params)))


@needs.compiler
def test_what_steers_begins_with_zeros() -> None:
    """As a check of the program takes it to (the assumption `zero-state`)."""
    right = counted.build()
    (counter,) = (p for p in describe(emit(right)).params if isinstance(p, Pointer) and p.contents)
    assert (counter.name, counter.contents) == ("launches", Contents("u32", (0,)))
    assert check(right).verdict == "proved"
    assert check(back(emit(right))).verdict == "proved"
    assert _read_back(right, None).verdict == "bounded"
    wrong = counted.build(met=False)
    assert check(back(emit(wrong))).rules == check(wrong).rules == {"race"}


# Faults in PTX get the verdict of the faults of the program that it comes from.


#: faults of which not every mutant is found, and how many are not
UNFOUND = {
    # the last wait of the cluster barrier: the CTA ends behind it
    "cluster barrier dropped": 1, "cluster barrier halved": 1, "cluster barrier relaxed": 1,
    # nothing but the copies is published
    "relaxed arrival": 1, "scope too small": 1,
    # without its work the kernel ends well
    "dead predicate": 1,
}  # fmt: skip


@needs.compiler
def test_a_mutant_in_ptx_is_found_as_the_mutant_of_the_program_is() -> None:
    name = "tilesim.kernels.cluster.multicast::multicast"
    (case,) = (c for c in cases() if str(c.target) == name)
    rows: dict[str, Row] = {}
    assert list(compared(case.kernel.build(**case.params), rows)) == []
    assert {f: r.made - r.found for f, r in rows.items() if r.found < r.made} == UNFOUND
    uncompared = {f for f, row in rows.items() if not row.compared}
    assert uncompared == {"barrier of another slot"}
    assert sum(row.made for row in rows.values()) == 34
