"""The last CTA adds up: every thread fences, one thread counts (threadFenceReduction)."""

from __future__ import annotations

from typing import Literal

import pytest

import tilesim as ts
from tilesim import Builder
from tilesim.arith.types import f32, s32

Missing = Literal["", "store fence", "barrier", "load fence"]
THREADS = 128


@ts.kernel(warps=4)
def last_cta(
    k: Builder, *, ctas: int = 2, sem: Literal["sc", "acq_rel"] = "acq_rel", missing: Missing = ""
) -> None:
    """Every CTA writes a part; the one that counts last reads all of them."""
    k.launch(grid=ctas)
    parts, out = k.tensor("parts", f32, (ctas, THREADS)), k.tensor("out", f32, (THREADS,))
    count, last = k.tensor("count", s32, (1,)), k.shared("last", s32, (1,))
    ticket, mine = k.var("ticket", 0), k.var("mine", 0)
    part, total = k.var("part", 1.0, dtype=f32), k.var("total", 0.0, dtype=f32)
    k.mem.store(parts[k.cta_x, k.thread_id], part)  # part
    if missing != "store fence":
        k.fence.memory(sem, scope="gpu")
    if missing != "barrier":
        k.sync_threads()
    with k.one_thread():
        k.mem.atomic(count[0], "add", 1, result=ticket)
        k.mem.store(last[0], ticket.eq(ctas - 1))
    k.sync_threads()
    k.mem.load(mine, last[0])
    with k.if_(mine.ne(0)):
        if missing != "load fence":
            k.fence.memory(sem, scope="gpu")
        for cta in range(ctas):
            k.mem.load(part, parts[cta, k.thread_id])  # all parts
            k.assign(total, total + part)
        k.mem.store(out[k.thread_id], total)


@pytest.mark.parametrize("sem", ["sc", "acq_rel"])
def test_a_cta_barrier_hands_fences_on(sem: Literal["sc", "acq_rel"]) -> None:
    assert ts.check(last_cta.build(sem=sem)).verdict == "proved"


@pytest.mark.parametrize("missing", ["store fence", "barrier", "load fence"])
def test_every_part_is_needed(missing: Missing) -> None:
    report = ts.check(last_cta.build(missing=missing))
    assert report.verdict == "failed"
    race = report.findings[0]
    assert race.rule == "race"
    assert "parts" in race.message


def test_by_the_text_a_fence_acts_for_its_own_thread() -> None:
    report = ts.check(last_cta.build(), strict="ptx")
    assert report.rules == {"race"}
