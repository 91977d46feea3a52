"""Tensor maps made on the device, in grids of which a cluster of each class is run."""

from __future__ import annotations

from tilesim import Builder, Program, s32, u8
from tilesim.checker import Report, check
from tilesim.ir.expr import select

CTAS = 100


def own_maps(*, slots: int = CTAS, rows: int = 4, odd: int = 4) -> Program:
    """Every CTA makes a map in one of ``slots`` and loads through it; CTA 57 gives it ``odd`` rows
    of a tensor of 4, the others ``rows``."""
    k = Builder("own_maps")
    k.launch(warps=1, grid=CTAS)
    g, maps = k.tensor("g", s32, (4, 8)), k.tensor("maps", u8, (CTAS, 128))
    d, full = k.shared("d", s32, (8, 8)), k.mbarriers("full")
    box = k.tensor_map(g, (8, 8))
    mine = maps[k.cta_x if slots == CTAS else 0]
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.tensormap.copy(mine, box)
        k.tensormap.replace(mine, "global_dim", select(k.cta_x.eq(57), odd, rows), 1)
        k.fence.proxy_tensormap_release("gpu")
        k.fence.proxy_tensormap_acquire(mine, "gpu")
        k.mbarrier.arrive_expect_tx(full, 256)
        k.tma.load(box, d, (0, 0), full, at=mine)
        k.mbarrier.wait(full, 0)
    return k.finish()


def rules(report: Report) -> set[str]:
    return {f.rule for f in report.findings}


def test_every_cta_has_a_map_of_its_own() -> None:
    report = check(own_maps())
    assert (report.verdict, report.findings) == ("proved", ())


def test_a_map_that_all_ctas_write_is_a_race() -> None:
    report = check(own_maps(slots=1))
    assert report.verdict == "failed"
    assert "race" in rules(report)


def test_one_map_of_many_says_more_than_there_is() -> None:
    assert check(own_maps(odd=3)).verdict == "proved"
    report = check(own_maps(odd=6))
    assert report.verdict == "failed"
    assert rules(report) == {"out-of-bounds"}
