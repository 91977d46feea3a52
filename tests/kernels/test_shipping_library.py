"""More kernels as libraries ship them, and the faults that were reported in them."""

from __future__ import annotations

import pytest

from tilesim.ir.program import Strict

from .shipping import library
from .shipping.rows import STRICT, Right, Wrong, assert_clean, assert_found, rings, wrong

RIGHT = (
    *(
        Right(library.overlap, {"n": n, "stages": s, "tiles": t})
        for n, s, t in ((1, 1, 1), (1, 2, 2), (3, 2, 2), (5, 3, 1))
    ),
    *(
        Right(library.signalling, {"stages": s, "n": n, "tiles": t})
        for s, n, t in ((2, 1, 1), (2, 5, 2), (3, 7, 1))
    ),
    *(Right(library.large_values, {"n": n}) for n in (1, 2, 5)),
    *(
        Right(library.shared_epilogue, {"stages": s, "n": n, "delay": d})
        for s, n, d in ((1, 3, 0), (2, 1, 1), (2, 5, 1), (3, 7, 2))
    ),
    *(
        Right(library.cluster_output, {"n": n, "tiles": t, "stages": s})
        for n, t, s in ((1, 1, 1), (2, 2, 2), (3, 3, 2))
    ),
    *rings(library.copy_through, empty=False),
    *(Right(library.subtiles, {"tiles": t, "slots": s}) for t, s in ((1, 1), (3, 1), (5, 2))),
    *(Right(library.throttle, {"stages": s, "tiles": t}) for s, t in ((1, 1), (1, 3), (2, 5))),
)
WRONG = (
    wrong(library.overlap, "output", "race", "load, math", "k.tile.store(so"),
    wrong(library.overlap, "scores", "wgmma-order", "math", "# BUG: if they are still"),
    wrong(library.overlap, "values", "race", "load, math", "k.tma.load(v_map, sv[slot"),
    wrong(library.overlap, "weights", "wgmma-order", "math", "# BUG: if PV still reads"),
    wrong(library.signalling, "this", "race", "load", "# refill"),
    wrong(library.signalling, "", "deadlock", "load, math 0", "# oldest stage", stages=1),
    wrong(library.large_values, "fence", "proxy-fence", "first", "# read P"),
    wrong(library.large_values, "own", "race", "first", "# read P"),
    wrong(library.large_values, "closed", "deadlock", "first, second", "k.bar.sync(empty"),
    wrong(library.large_values, "early", "race", "first, second", "k.tile.store(sp"),
    wrong(library.shared_epilogue, "late", "race", "load, epilogue", "# reload"),
    wrong(library.cluster_output, "own", "race", "load", "k.bulk.load(buffer[stage, half]"),
    wrong(library.cluster_output, "no wait", "race", "load", "k.bulk.load(buffer[stage, half]"),
    wrong(library.cluster_output, "tail", "peer-exit", "", "# it has left"),
    wrong(library.copy_through, "pending", "race", "", "# next"),
    wrong(library.subtiles, "release", "tcgen05-order", "epilogue, mma", "# BUG: if it was given"),
    wrong(library.subtiles, "wait::ld", "tcgen05-order", "epilogue, mma", "# BUG: if it was given"),
    wrong(library.subtiles, "wait::ld", "tmem-lifetime", "mma", "# free", tiles=1),
    wrong(library.throttle, "early", "race", "scheduler", "k.clc.try_cancel(response"),
    wrong(library.throttle, "count", "deadlock", "scheduler", "# before asking", stages=1),
)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("right", RIGHT, ids=str)
def test_right_kernel_is_clean(right: Right, strict: Strict) -> None:
    assert_clean(right, strict)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("fault", WRONG, ids=str)
def test_fault_is_found(fault: Wrong, strict: Strict) -> None:
    assert_found(fault, strict)
