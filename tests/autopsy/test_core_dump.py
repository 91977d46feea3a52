"""What is read out of dumps: real ones, and ones that the writer makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilesim.autopsy.core_dump import CoreDump, exception_text
from tilesim.autopsy.errors import DumpError
from tilesim.records import replace

from . import dump_writer as writer
from .held import held
from .malformed import ENTRY, warp

DUMPS = Path(__file__).parent / "dumps"
REAL = ["ring", "waits", "states", "dependent", "too_many_consumers", "relayed", "dropped_answer"]


def real(name: str) -> CoreDump:
    return CoreDump(DUMPS / f"{name}.nvcudmp.gz")


@pytest.mark.parametrize("name", REAL)
def test_a_dump_that_is_written_again_holds_the_same(name: str, tmp_path: Path) -> None:
    dump = real(name)
    again = CoreDump(writer.copy_of(dump).write(tmp_path / "again"))
    first, second = held(dump), held(again)
    for part in first:
        assert first[part] == second[part], part


def test_what_the_ring_s_dump_holds() -> None:
    dump = real("ring")
    assert dump.driver == ((580, 159), (13, 0), ("skip_global_memory",))
    assert dump.devices == ((0, (9, 0), 132, "NVIDIA H200"),)
    (grid,) = dump.grids
    assert (grid.grid, grid.block, grid.cluster, grid.status) == (
        (3, 1, 1), (160, 1, 1), (0, 0, 0), "active",
    )  # fmt: skip
    assert [c.index for c in dump.ctas] == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    warps = dump.ctas[1].warps
    assert [w.number for w in warps] == [0, 1, 2, 3, 4]
    assert [len(w.lanes) for w in warps] == [32, 32, 32, 32, 1]
    assert (warps[4].valid, warps[4].exited) == (1, 0xFFFFFFFE)
    assert {lane.pc - grid.entry for w in warps for lane in w.lanes} == {0x14A0, 0x15A0}
    image = dump.image_of(grid)
    assert image is not None
    assert image.data[:4] == b"\x7fELF"


def dump_of(dump: writer.Dump, folder: Path) -> CoreDump:
    return CoreDump(dump.write(folder / "core"))


def running(index: writer.Triple, **more: Any) -> writer.Cta:
    """A CTA of grid 1 with a warp."""
    return writer.Cta(1, index, [warp()], **more)


def test_the_clusters_of_ctas(tmp_path: Path) -> None:
    """(1, 1) of the second cluster has ended: its peers run, and a cluster starts together."""
    size = (2, 2, 1)
    ctas = [
        running((x, y, 0), sm=n, cluster=(x // 2, 0, 0), cluster_size=size)
        for n, (x, y) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1)])
    ]
    grid = writer.Grid(1, ENTRY, (6, 2, 1), (64, 1, 1), cluster=size)
    dump = dump_of(writer.Dump([writer.Device([grid], ctas)]), tmp_path)
    assert [(c.index[:2], c.cluster, c.rank) for c in dump.ctas] == [
        ((0, 0), (0, 0, 0), 0), ((1, 0), (0, 0, 0), 1), ((2, 0), (1, 0, 0), 0),
        ((3, 0), (1, 0, 0), 1), ((0, 1), (0, 0, 0), 2), ((1, 1), (0, 0, 0), 3),
        ((2, 1), (1, 0, 0), 2),
    ]  # fmt: skip
    whole, part = dump.cluster_of(dump.ctas[0]), dump.cluster_of(dump.ctas[2])
    assert [c and c.index[:2] for c in whole] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [c and c.index[:2] for c in part] == [(2, 0), (3, 0), (2, 1), None]
    assert dump.absent(dump.grids[0]) == (1, 4)


def test_ranks_in_a_cluster_of_three_dimensions(tmp_path: Path) -> None:
    size = (4, 2, 2)
    indices = [(x, y, z) for z in range(2) for y in range(2, 4) for x in range(4, 8)]
    ctas = [running(index, sm=n, cluster_size=size) for n, index in enumerate(indices)]
    grid = writer.Grid(1, ENTRY, (8, 4, 2), (64, 1, 1), cluster=size)
    dump = dump_of(writer.Dump([writer.Device([grid], ctas)]), tmp_path)
    by_index = {c.index: c for c in dump.ctas}
    assert [by_index[index].rank for index in indices] == list(range(16))
    assert {c.cluster for c in dump.ctas} == {(1, 1, 0)}


def test_clusters_of_two_sizes_in_one_grid(tmp_path: Path) -> None:
    """A grid with a preferred cluster size has CTAs in clusters of that size and of its own."""
    grid = writer.Grid(1, ENTRY, (8, 1, 1), (64, 1, 1), cluster=(2, 1, 1))
    sizes = [4, 4, 4, 4, 2, 2]
    ctas = [running((n, 0, 0), sm=n, cluster_size=(s, 1, 1)) for n, s in enumerate(sizes)]
    dump = dump_of(writer.Dump([writer.Device([grid], ctas)]), tmp_path)
    assert [len(dump.cluster_of(c)) for c in dump.ctas] == sizes
    assert [c.rank for c in dump.ctas] == [0, 1, 2, 3, 0, 1]
    assert dump.absent(dump.grids[0]) == (0, 2)


def test_cluster_size_of_a_driver_that_writes_it_for_the_grid_only(tmp_path: Path) -> None:
    grid = writer.Grid(1, ENTRY, (2, 1, 1), (64, 1, 1), cluster=(2, 1, 1))
    ctas = [running((n, 0, 0), sm=n, cluster_size=(2, 1, 1)) for n in range(2)]
    device = writer.Device([grid], ctas)
    dump = dump_of(writer.Dump([device], release=(550, 54)), tmp_path)
    assert [(c.cluster, c.rank) for c in dump.ctas] == [((0, 0, 0), 0), ((0, 0, 0), 1)]


def test_a_cooperative_grid_is_as_large_as_its_ctas_show(tmp_path: Path) -> None:
    """Its row has a grid of 1 (r580); one that no GPU could run at once is damage."""

    def of(*indices: writer.Triple, grid: writer.Triple = (1, 1, 1)) -> CoreDump:
        ctas = [running(index, sm=n) for n, index in enumerate(indices)]
        device = writer.Device([writer.Grid(1, ENTRY, grid, (64, 1, 1))], ctas)
        return dump_of(writer.Dump([device]), tmp_path)

    dump = of((0, 1, 0), (2, 0, 0))
    assert (dump.grids[0].grid, dump.grids[0].at_least) == ((3, 2, 1), True)
    assert [c.number for c in dump.ctas] == [2, 3]
    assert dump.absent(dump.grids[0]) == (0, 4)
    dump = of((0, 0, 0))
    assert (dump.grids[0].grid, dump.grids[0].at_least) == ((1, 1, 1), False)
    for damaged in (of((1 << 20, 0, 0)), of((2, 0, 0), grid=(2, 1, 1))):
        with pytest.raises(DumpError, match="of a grid"):
            assert damaged.ctas


def test_without_clusters(tmp_path: Path) -> None:
    grid = writer.Grid(1, ENTRY, (3, 1, 1), (64, 1, 1))
    dump = dump_of(writer.Dump([writer.Device([grid], [running((1, 0, 0))])]), tmp_path)
    (cta,) = dump.ctas
    assert (cta.cluster, cta.cluster_size, cta.rank) == (None, None, 0)
    assert dump.cluster_of(cta) == (cta,)
    assert dump.absent(dump.grids[0]) == (0, 2)


def test_several_grids_contexts_and_devices(tmp_path: Path) -> None:
    """Addresses and ids may be the same in two contexts, and on two devices."""
    images = [b"\x7fELF" + bytes([n]) for n in range(4)]
    grids = [
        writer.Grid(7, ENTRY, (1, 1, 1), (32, 1, 1), context=0, module=1),
        writer.Grid(8, ENTRY, (2, 1, 1), (32, 1, 1), context=1, module=0, status=1),
        writer.Grid(9, ENTRY, (1, 1, 1), (32, 1, 1), context=1, module=1, kind=1),
    ]
    contexts = [
        [writer.Module(images[0]), writer.Module(images[1], images[3])],
        [writer.Module(images[2])],
    ]
    one = writer.Device(grids, [writer.Cta(7, (0, 0, 0), [warp()], sm=3)], contexts)
    other = writer.Device(
        [writer.Grid(7, ENTRY, (1, 1, 1), (32, 1, 1))], [writer.Cta(7, (0, 0, 0), [warp()])],
        [[writer.Module(images[0])]], arch=(10, 0), sms=2, name="NVIDIA B200",
    )  # fmt: skip
    dump = dump_of(writer.Dump([one, other]), tmp_path)
    assert [(d.name, d.arch) for d in dump.devices] == [
        ("NVIDIA H200", (9, 0)), ("NVIDIA B200", (10, 0)),
    ]  # fmt: skip
    assert [(g.device, g.id, g.status, g.system) for g in dump.grids] == [
        (0, 7, "active", False), (0, 8, "pending", False), (0, 9, "active", True),
        (1, 7, "active", False),
    ]  # fmt: skip
    found = [dump.image_of(g) for g in dump.grids]
    assert [i and i.data for i in found] == [images[1], images[2], None, images[0]]
    original = dump.image_of(dump.grids[0], relocated=False)
    assert original is not None
    assert original.data == images[3]
    assert [(c.grid.device, c.sm) for c in dump.ctas] == [(0, 3), (1, 0)]
    assert dump.absent(dump.grids[1]) == (0, 2)


@pytest.mark.parametrize(
    ("release", "barrier", "exited", "state"),
    [
        ((615, 1), ("cta", 5), 0xFF, "blockedplus"),
        ((590, 44), ("cta", 5), 0xFF, "blockedplus"),
        ((580, 159), None, 0xFF, "blockedplus"),
        ((570, 1), None, None, None),
        ((525, 60), None, None, None),
    ],
)
def test_rows_of_drivers(
    release: tuple[int, int], barrier: object, exited: object, state: object, tmp_path: Path
) -> None:
    lanes = [writer.Lane(n, ENTRY, (n, 0, 0), state=6) for n in range(8, 32)]
    (warp,) = one_warp(writer.Warp(lanes, barrier=(3, 5)), tmp_path, release).ctas[0].warps
    assert (warp.barrier, warp.exited, warp.lanes[0].state) == (barrier, exited, state)


def one_warp(warp: writer.Warp, folder: Path, release: tuple[int, int] = (580, 159)) -> CoreDump:
    grid = writer.Grid(1, ENTRY, (1, 1, 1), (32, 1, 1))
    device = writer.Device([grid], [writer.Cta(1, (0, 0, 0), [warp])])
    return dump_of(writer.Dump([device], release=release), folder)


def test_registers_of_lanes_that_are_not_all_there(tmp_path: Path) -> None:
    """The sections of a lane have the number of its row, as is published: not its own."""
    lanes = [writer.Lane(n, ENTRY, (n, 0, 0), (n, 100 + n), (n > 8,) * 8) for n in (4, 9, 30)]
    (warp,) = one_warp(writer.Warp(lanes), tmp_path).ctas[0].warps
    assert [warp.register(n, 1) for n in (4, 9, 30)] == [104, 109, 130]
    assert [warp.predicates(n) for n in (4, 9)] == [(False,) * 8, (True,) * 8]
    assert (warp.register(0, 1), warp.register(4, 2), warp.register(4, -1)) == (None,) * 3


def test_rows_of_lanes_that_are_not_there_are_blank(tmp_path: Path) -> None:
    """A table whose rows have the numbers of lanes, as the tests of LLDB's reader make them."""
    blank = writer.Lane(0, 0, (0, 0, 0), state=0)
    own = {n: writer.Lane(n, ENTRY + n, (n, 0, 0), (100 + n,)) for n in (2, 4)}
    lanes = [own.get(n, blank) for n in range(5)]
    (warp,) = one_warp(writer.Warp(lanes, valid=0b10100), tmp_path).ctas[0].warps
    assert [(lane.number, lane.pc - ENTRY) for lane in warp.lanes] == [(2, 2), (4, 4)]
    assert [warp.register(n, 0) for n in range(5)] == [None, None, 102, None, 104]


def test_registers_by_the_number_of_the_lane(tmp_path: Path) -> None:
    """Where the sections have the lanes' own numbers, those count."""
    lanes = [writer.Lane(n, ENTRY, (n, 0, 0), (100 + n,)) for n in (4, 9)]
    grid = writer.Grid(1, ENTRY, (1, 1, 1), (32, 1, 1))
    device = writer.Device([grid], [writer.Cta(1, (0, 0, 0), [writer.Warp(lanes)])])

    def renumber(infos: dict[int, int]) -> CoreDump:
        def change(sections: list[writer.Section]) -> None:
            for n, s in enumerate(sections):
                if s.name.startswith((".cudbg.regs.", ".cudbg.pred.")):
                    sections[n] = replace(s, info=infos[s.info])

        (tmp_path / "core").write_bytes(writer.Dump([device]).to_bytes(change))
        return CoreDump(tmp_path / "core")

    (warp,) = renumber({0: 4, 1: 9}).ctas[0].warps
    assert [warp.register(n, 0) for n in (4, 9)] == [104, 109]
    (warp,) = renumber({0: 1, 1: 2}).ctas[0].warps  # neither: not known
    assert [warp.register(n, 0) for n in (4, 9)] == [None, None]


def test_warps_in_the_order_of_the_cta(tmp_path: Path) -> None:
    """A warp's place in the CTA follows from its threads, in a block of three dimensions."""
    block = (8, 4, 3)
    threads = [(n % 8, n // 8 % 4, n // 32) for n in range(96)]
    warps = [
        writer.Warp(
            [writer.Lane(n, ENTRY, threads[32 * w + n]) for n in range(32)], slot=10 + w
        )
        for w in (2, 0, 1)
    ]  # fmt: skip
    grid = writer.Grid(1, ENTRY, (1, 1, 1), block)
    device = writer.Device([grid], [writer.Cta(1, (0, 0, 0), warps)])
    dump = dump_of(writer.Dump([device]), tmp_path)
    assert [(w.number, w.lanes[0].thread[2]) for w in dump.ctas[0].warps] == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


def test_exceptions(tmp_path: Path) -> None:
    """A trap leaves its warp broken; an SM says what its warps have met, also if they ended."""
    (trapped,) = real("states").ctas[0].warps
    assert trapped.broken
    assert not any(w.broken for w in real("ring").ctas[0].warps)
    lanes = [writer.Lane(0, ENTRY, (0, 0, 0), exception=1)]
    cta = writer.Cta(1, (0, 0, 0), [writer.Warp(lanes)])
    device = writer.Device(
        [writer.Grid(1, ENTRY, (1, 1, 1), (32, 1, 1))], [cta],
        faults={5: writer.Sm(31, ENTRY + 32), 9: writer.Sm(99)},
    )  # fmt: skip
    dump = dump_of(writer.Dump([device]), tmp_path)
    (warp,) = dump.ctas[0].warps
    assert exception_text(warp.lanes[0].exception) == "lane: illegal address"
    assert dump.faults == ((0, 5, 31, ENTRY + 32), (0, 9, 99, None))
    assert "more arrivals at an mbarrier" in exception_text(31)
    assert exception_text(99) == "exception 99"


def test_lanes_that_wait_for_lanes() -> None:
    """Of the warp barrier of `waits`, 16 lanes have come in the second CTA: they are blocked."""
    warp = real("waits").ctas[1].warps[3]
    states = {lane.number: lane.state for lane in warp.lanes}
    assert {n for n, state in states.items() if state == "blockedplus"} == set(range(16))


@pytest.mark.parametrize(
    ("flags", "skipped"),
    [
        (0, ()),
        (18, ("skip_global_memory",)),
        (
            0x2F,
            (
                "skip_nonrelocated_elf_images", "skip_global_memory", "skip_shared_memory",
                "skip_local_memory", "skip_constbank_memory",
            ),
        ),
    ],
)  # fmt: skip
def test_what_was_left_out(flags: int, skipped: tuple[str, ...], tmp_path: Path) -> None:
    driver = dump_of(writer.Dump([writer.Device()], flags=flags), tmp_path).driver
    assert driver is not None
    assert driver.skipped == skipped


def test_what_is_not_asked_for_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PCs of a GPU that is full of warps are read in as many steps as there are warps: registers,
    of which there are a section or more for each lane, are not looked at."""
    warps = [warp(w) for w in range(8)]
    ctas = [writer.Cta(1, (n, 0, 0), warps, n) for n in range(32)]
    grid = writer.Grid(1, ENTRY, (32, 1, 1), (256, 1, 1))
    path = writer.Dump([writer.Device([grid], ctas, sms=32)]).write(tmp_path / "core")
    looked_at: list[int] = []
    extent = CoreDump._extent

    def counted(self: CoreDump, number: int, what: str) -> tuple[int, int, int]:
        looked_at.append(number)
        return extent(self, number, what)

    monkeypatch.setattr(CoreDump, "_extent", counted)
    dump = CoreDump(path)
    assert looked_at == []
    assert {lane.pc for c in dump.ctas for w in c.warps for lane in w.lanes} == {ENTRY + 16}
    assert 32 * 8 < len(looked_at) < 32 * 8 + 32 * 4
    assert dump.images == ()
    assert dump.ctas[5].warps[7].register(31, 3) == 3
    assert len(looked_at) < 32 * 8 + 32 * 4
