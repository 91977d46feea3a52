"""Kernels as libraries ship them are clean; the faults that get reported in them are found.

Every row says which rule finds a fault, which roles take part, and a line that the finding names.
"""

from __future__ import annotations

import pytest

from tilesim.ir.program import Strict

from .shipping import blackwell, memory, pipelines
from .shipping.rows import STRICT, Right, Wrong, assert_clean, assert_found, rings, wrong

RIGHT = (
    *rings(pipelines.peek),
    *rings(pipelines.staged_store, empty=False),
    *rings(pipelines.lane_release, empty=False),
    *rings(memory.unified_pipeline),
    *(Right(memory.multistage, {"stages": s, "n": 2 * s + 1}) for s in (2, 3, 4)),
    *(
        Right(pipelines.multicast, {"stages": s, "n": 2 * s + 1, "columns": x, "rows": y})
        for s, x, y in ((1, 2, 1), (2, 1, 2), (1, 4, 1), (2, 2, 2))
    ),
    *(Right(pipelines.ordered, {"stages": s, "tiles": t}) for s, t in ((1, 1), (2, 4), (3, 5))),
    *(
        Right(pipelines.load_compute_store, {"stages": s, "outs": o, "n": n, "tiles": t})
        for s, o, n, t in ((1, 1, 2, 2), (2, 1, 3, 2), (3, 2, 7, 1))
    ),
    *(Right(pipelines.exchange, {"n": n}) for n in (1, 2, 5)),
    Right(pipelines.tile_counter),
    *(
        Right(blackwell.accumulators, {"stages": s, "depth": d, "tiles": t, "slots": a})
        for s, d, t, a in ((1, 3, 3, 1), (2, 3, 3, 2), (3, 1, 5, 2), (3, 2, 5, 4))
    ),
    *(Right(blackwell.pair, {"stages": s, "depth": d}) for s, d in ((1, 3), (2, 5))),
    *(Right(blackwell.dq, {"n": n, "stages": s}) for n, s in ((1, 1), (3, 1), (5, 2))),
    *(Right(blackwell.answers, {"stages": s, "size": c}) for s, c in ((1, 1), (2, 2))),
    *(Right(memory.early_exit, {"n": n}) for n in (1, 3, 5)),
    *(Right(memory.double_buffer, {"n": n}) for n in (1, 2, 5)),
    *(Right(memory.row_sums, {"size": c}) for c in (2, 4)),
    Right(memory.turnstile),
    *(
        Right(memory.message, {"fence": fence, "release": s, "acquire": s, "cluster": c})
        for fence in (False, True)
        for s, c in (("gpu", 1), ("sys", 1), ("cluster", 2))
    ),
    *(
        Right(memory.counter, {"scope": s, "cluster": c}, "proved")
        for s, c in (("gpu", 1), ("cluster", 2))
    ),
)
WRONG = (
    wrong(pipelines.peek, "this stage", "race", "consumer, producer", "# BUG: if another stage"),
    wrong(pipelines.multicast, "all", "deadlock", "consumer, producer", "# BUG: if it is owed"),
    wrong(pipelines.multicast, "own", "deadlock", "consumer, producer", "# BUG: if it is owed"),
    wrong(pipelines.multicast, "tail", "peer-exit", "consumer", "# BUG: if it is gone"),
    wrong(pipelines.lane_release, "one lane", "deadlock", "math, producer", "# BUG: if a lane"),
    wrong(pipelines.lane_release, "own", "race", "producer", "k.bulk.load(buffer[stage, half]"),
    wrong(pipelines.ordered, "turn", "race", "consumer 0", "# BUG: if the other group's"),
    wrong(pipelines.staged_store, "late", "race", "", "k.mem.store(staging"),
    wrong(pipelines.load_compute_store, "restart", "async-at-exit", "load", "k.bulk.load(in"),
    wrong(pipelines.load_compute_store, "in flight", "race", "compute", "k.mem.store(outputs"),
    wrong(pipelines.load_compute_store, "fence", "proxy-fence", "store", "k.bulk.store(Y[i], out"),
    wrong(pipelines.exchange, "free", "race", "group 0, group 1", "k.mem.load(y, halves[other"),
    wrong(pipelines.exchange, "id", "named-barrier", "group 0", "k.bar.sync(1 if"),
    wrong(pipelines.tile_counter, "closed", "deadlock", "consumer, producer", "k.bar.sync(empty"),
    wrong(pipelines.tile_counter, "early", "race", "consumer", "# BUG: if the slot", tiles=3),
    wrong(blackwell.accumulators, "no acquire", "tcgen05-order", "mma", "d, sa[slot.stage]"),
    wrong(blackwell.accumulators, "arrive", "race", "load, mma", "k.tma.load(a_map, sa[slot"),
    wrong(blackwell.accumulators, "tail", "tmem-lifetime", "mma", "# BUG: if the epilogue still"),
    wrong(blackwell.accumulators, "wait::ld", "tcgen05-order", "epilogue", "k.tcgen05.ld(part, k."),
    wrong(blackwell.pair, "bytes", "deadlock", "mma", "k.mbarrier.wait(full[stage], (item"),
    wrong(blackwell.pair, "tail", "peer-exit", "mma", "# BUG: if CTA 1 is gone"),
    wrong(blackwell.pair, "mask", "deadlock", "load", "k.mbarrier.wait(empty"),
    wrong(blackwell.pair, "own", "deadlock", "mma", "k.mbarrier.wait(free"),
    wrong(blackwell.dq, "fence", "proxy-fence", "mma, compute", "k.tile.store(ds_tile"),
    wrong(blackwell.dq, "no acquire", "tcgen05-order", "mma, reduce", "k.tcgen05.mma(d"),
    wrong(blackwell.dq, "pending", "race", "reduce", "# BUG: if a reduction still"),
    wrong(blackwell.dq, "barrier", "race", "reduce", "k.bulk.reduce(dQ"),
    wrong(blackwell.answers, "own", "deadlock", "scheduler", "k.mbarrier.wait(empty"),
    wrong(blackwell.answers, "exit", "peer-exit", "", "# BUG: if CTA 0 is gone"),
    wrong(memory.early_exit, "silent", "deadlock", "", "k.mbarrier.wait(b"),
    wrong(memory.double_buffer, "one side", "deadlock", "producer", "k.mbarrier.wait(ready"),
    wrong(memory.double_buffer, "early", "race", "producer, consumer", "# BUG: if it was"),
    wrong(memory.unified_pipeline, "inc", "deadlock", "", "k.mbarrier.wait(full[stage_]"),
    wrong(memory.unified_pipeline, "no release", "deadlock", "", "k.mbarrier.wait(empty[at]"),
    wrong(memory.multistage, "pending", "race", "", "# BUG: if it is in flight"),
    wrong(memory.multistage, "no barrier", "race", "", "k.cp_async.copy(buffer[step"),
    wrong(memory.multistage, "tail", "race", "", "# BUG: if it is in flight"),
    wrong(memory.row_sums, "no empty", "race", "", "k.cluster.st_async(place"),
    wrong(memory.row_sums, "exit", "peer-exit", "", "k.mbarrier.arrive(empty[0].at(peer)"),
    wrong(memory.turnstile, "no entry", "race", "", "# BUG: if nothing orders the part"),
    wrong(memory.turnstile, "no exit", "race", "", "# BUG: if nothing orders the part"),
    wrong(memory.turnstile, "", "race", "", "k.mem.load(state", release="cta"),
    *(
        Wrong(memory.message, {"release": r, "acquire": a, "cluster": c, "fence": fence}, "race",
              frozenset(), "# BUG: if a scope leaves out")
        for fence in (False, True)
        for r, a, c in (("cta", "gpu", 1), ("gpu", "cta", 1), ("cluster", "gpu", 1),
                        ("cta", "cluster", 2))
    ),
    *(
        Wrong(memory.counter, params, "race", frozenset(), "k.mem.atomic(count")
        for params in ({"scope": "cta"}, {"scope": "cluster"}, {"scope": "cta", "cluster": 2})
    ),
)  # fmt: skip


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("right", RIGHT, ids=str)
def test_shipping_kernel_is_clean(right: Right, strict: Strict) -> None:
    assert_clean(right, strict)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("fault", WRONG, ids=str)
def test_reported_fault_is_found(fault: Wrong, strict: Strict) -> None:
    assert_found(fault, strict)
