"""The gallery: what is said of each kernel, that it computes what NumPy does, and what is found
where one instruction of it is changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.verdicts.corpora import entries, name_of
from tests.verdicts.files import deciding, kept
from tests.verdicts.row import row_of
from tilesim.checker import check
from tilesim.dsl.kernel import Kernel
from tilesim.errors import InvalidProgram, UsageError
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Const, constant
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierArrive
from tilesim.ir.program import Program, Strict, instructions
from tilesim.kernels.blackwell import (
    attention,
    matmul_v0,
    matmul_v1,
    matmul_v2,
    matmul_v3,
    matmul_v4,
    matmul_v5,
    matmul_v6,
)
from tilesim.kernels.cluster import matmul, multicast, push, ring, split_k
from tilesim.kernels.hopper import attention as hopper_attention
from tilesim.kernels.hopper import (
    attention_v1,
    copy,
    matmul_fp8,
    matmul_fp8_blocks,
    matmul_v7,
    matmul_v8,
    softmax,
)
from tilesim.kernels.hopper import matmul_v0 as hopper_v0
from tilesim.kernels.hopper import matmul_v1 as hopper_v1
from tilesim.kernels.hopper import matmul_v3 as hopper_v3
from tilesim.kernels.hopper import matmul_v5 as hopper_v5
from tilesim.kernels.hopper import matmul_v6 as hopper_v6
from tilesim.kernels.nvfuser import chained, multi_role, synchronous_producer
from tilesim.kernels.registry import Case, cases
from tilesim.lib.schedule import rasterised
from tilesim.sim.machine.simulate import Policy

from .evidence import assert_computes
from .fewer_tiles import SIZES, with_fewer_tiles
from .mutate import edited

CASES = tuple(case for case in cases() if case.family != "bugs")
RIGHT = [case for case in CASES if not case.fails]
ENTRIES = {entry.name: entry for entry in entries("gallery")}
ROWS = {key: replace(row, recheck="") for key, row in kept("gallery").items()}
FEWER = {target.removeprefix("tilesim.kernels.") for target in SIZES}


# ------------------------------------------------------------------ as they are


@pytest.mark.parametrize(("name", "level"), [key for key in deciding(ROWS) if key[0] not in FEWER])
def test_a_kernel_is_judged_as_the_verdict_file_says(name: str, level: Strict) -> None:
    """Verdict, rules, roles and lines; those that are `proved` have no findings."""
    entry = ENTRIES[name]
    report = check(entry.build(), strict=level, inputs=entry.inputs())
    assert row_of(name, report, level) == ROWS[name, level]


@pytest.mark.parametrize("target", SIZES)
def test_a_kernel_that_asks_for_tiles_is_proved_with_few_of_them(target: str) -> None:
    (case,) = (case for case in CASES if case.target == target)
    assert check(with_fewer_tiles(case).build(), strict="ptx").verdict == "proved"


@pytest.mark.slow
@pytest.mark.parametrize("target", SIZES)
def test_a_kernel_that_asks_for_tiles_is_proved_with_all_of_them(target: str) -> None:
    (case,) = (case for case in CASES if case.target == target)
    assert check(case.build()).verdict == "proved"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{name_of(case)}-{case.strict}")
def test_a_case_expects_what_the_verdict_file_says(case: Case) -> None:
    row = ROWS[name_of(case), case.strict]
    assert case.accepts(row.verdict, tuple(row.rules))


@pytest.mark.parametrize(
    "case", [case for case in RIGHT if "attention" not in case.target], ids=name_of
)
def test_a_right_kernel_equals_numpy(case: Case) -> None:
    """In one random schedule, with its defaults also in the timed one. Attention rounds: what it
    computes is in `test_attention`."""
    schedules: list[tuple[Policy, int]] = [("random", 1)]
    if not case.params:
        schedules.append(("timed", 0))
    assert_computes(case, schedules, rtol=1e-5 if case.kernel is softmax.softmax else 0)


@pytest.mark.parametrize("band", [1, 2, 4])
def test_every_tile_is_computed_once_whatever_the_band(band: int) -> None:
    params = {"band": band, "depth": 64, "block_n": 64, "pieces": 1}
    assert_computes(Case(matmul_v7.matmul, params, "hopper", "proved"), [("timed", 0)])


@pytest.mark.parametrize(("down", "across", "width"), [(3, 4, 2), (2, 5, 3), (1, 1, 4), (4, 3, 8)])
def test_every_tile_is_computed_once_in_strips(down: int, across: int, width: int) -> None:
    order = [
        tuple(constant(part) or 0 for part in rasterised(tile, down, across, width))
        for tile in range(down * across)
    ]
    assert sorted(order) == [(row, column) for row in range(down) for column in range(across)]
    assert order == sorted(order, key=lambda at: (at[1] // width, at[0], at[1]))


@pytest.mark.parametrize(
    ("kernel", "params", "message"),
    [
        (hopper_v3.matmul, {"n": 0}, "n=0 is not a positive multiple of the block size 64"),
        (hopper_v3.matmul, {"n": 100}, "n=100 is not a positive multiple of the block size 64"),
        (matmul_v7.matmul, {"band": 3}, "m=512 is not a positive multiple of the block size 384"),
        (matmul_v7.matmul, {"block_n": 32}, "block_n=32 is not a positive multiple"),
        (matmul.matmul, {"columns": 3}, "must divide 64"),
        (matmul.matmul, {"stages": 0}, "must divide 64"),
        (attention_v1.attention, {"block": 72}, "block=72 must be a multiple of 16"),
        (attention_v1.attention, {"heads": 3, "grouped": 2}, "heads=3 must be a multiple of"),
        (attention_v1.attention, {"depth": 80}, "depth=80 is not a positive multiple"),
        (attention_v1.attention, {"consumers": 4}, "consumers=4 must be 2 or 3"),
        (attention_v1.attention, {"causal": True, "keys": 512}, "must be equal to keys=512"),
    ],
)
def test_sizes_that_a_kernel_does_not_cover_are_refused(
    kernel: Kernel, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        kernel.build(**params)


def test_cost_grows_linearly_with_ctas() -> None:
    """Instructions per CTA stay the same when the grid has four times as many clusters."""
    few = check(matmul.matmul.build(clusters=1, iterations=4)).stats
    many = check(matmul.matmul.build(clusters=4, iterations=4)).stats
    assert (few.ctas, many.ctas) == (4, 16)
    assert many.instructions == 4 * few.instructions


# ------------------------------------------------------------------ one instruction changed

Edit = Callable[[Any], Op | None]


def gone(op: Any) -> None:
    """The instruction is left out."""


def with_(**fields: Any) -> Edit:
    """The instruction has other operands."""
    return lambda op: replace(op, **fields)


def at_home(op: Any) -> Any:
    """It names the barrier of its own CTA."""
    return replace(op, mbar=replace(op.mbar, cta=None))


def plain_arrive(op: Any) -> Op:
    """The arrive that a commit is sometimes mistaken for: the mma has only been started."""
    assert isinstance(op.mbar, Mbar)
    return MbarrierArrive(mbar=op.mbar, count=Const(1), loc=op.loc)


@dataclass(frozen=True)
class Broken:
    """A kernel of which ``edit`` changes the instructions that ``mnemonic`` names: those on lines
    with the text ``at``, the one with the number ``at``, or all of them.

    The first finding of one of ``rules`` names lines with these texts.
    """

    kernel: Kernel
    mnemonic: str
    at: str | int
    edit: Edit
    rules: frozenset[str]
    lines: tuple[str, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    strict: Strict = "practice"

    def __str__(self) -> str:
        module = self.kernel.function.__module__.removeprefix("tilesim.kernels.")
        return f"{module}-{self.mnemonic}-{self.at}"

    def places(self, text: str) -> set[int]:
        """The lines of the kernel's module that contain a text."""
        source = Path(inspect.getsourcefile(self.kernel.function) or "").read_text().splitlines()
        found = {number for number, row in enumerate(source, 1) if text in row}
        assert found, text
        return found

    def program(self) -> Program:
        """The changed kernel; of one that asks for tiles, with few of them."""
        params = with_fewer_tiles(Case(self.kernel, self.params, "blackwell", "proved")).params
        right = self.kernel.build(**params)
        if isinstance(self.at, int):
            return edited(right, self.mnemonic, self.edit, self.at)
        places = self.places(self.at)
        assert places & {op.loc.line for op in instructions(right) if op.mnemonic == self.mnemonic}
        return edited(
            right, self.mnemonic, lambda op: self.edit(op) if op.loc.line in places else op
        )


def broken(
    kernel: Kernel, mnemonic: str, at: str | int, edit: Edit, rules: str, *lines: str,
    strict: Strict = "practice", **params: Any,
) -> Broken:  # fmt: skip
    """A row of the table."""
    return Broken(kernel, mnemonic, at, edit, frozenset(rules.split()), lines, params, strict)


WAIT, ARRIVE, INIT = "mbarrier.wait", "mbarrier.arrive", "mbarrier.init"
EXPECT, COMMIT = "mbarrier.arrive.expect_tx", "tcgen05.commit"
STORED, SENT = "k.tile.store(piece", "k.tma.store(c_map"
#: any of them, by the order in which threads come
EARLY = "race over-arrival phase-ambiguity phase-alias deadlock tx-mismatch"

BROKEN = (
    # one warpgroup
    broken(hopper_v0.matmul, "barrier.sync", 1, gone, "race"),
    broken(hopper_v1.matmul, EXPECT, "", with_(bytes=Const(8192)), "race"),
    broken(hopper_v1.matmul, EXPECT, "", with_(bytes=Const(32768)), "deadlock",
           "k.mbarrier.wait(loaded"),
    # the half-migrated caller of tilus #88: count 2, one explicit arrive
    broken(hopper_v1.matmul, INIT, "", with_(count=Const(2)), "deadlock"),
    broken(hopper_v1.matmul, WAIT, "", with_(phase=Const(0)), "race"),
    # producer and consumer
    broken(hopper_v3.matmul, INIT, 1, with_(count=Const(64)), "phase-alias",
           "k.mbarrier.arrive(empty[stage])"),
    broken(hopper_v3.matmul, INIT, 1, with_(count=Const(64)), "phase-ambiguity",
           "k.mbarrier.arrive(empty[stage])", strict="ptx"),
    broken(hopper_v3.matmul, WAIT, 0, gone, "over-arrival", "k.mbarrier.arrive_expect_tx("),
    broken(hopper_v3.matmul, ARRIVE, "", with_(sem="relaxed"), "race"),
    broken(hopper_v3.matmul, "wgmma.wait_group", "", gone, "wgmma-order"),
    broken(hopper_v5.matmul, "wgmma.wait_group", 0, with_(pending=2), "race"),
    broken(hopper_v5.matmul, INIT, 1, with_(count=Const(4)), "race"),
    broken(hopper_v5.matmul, "fence.proxy.async", "", gone, "proxy-fence", "k.tma.store(c_map",
           "k.tile.store(sC[group]"),
    broken(hopper_v5.matmul, "cp.async.bulk.wait_group", "", gone, "async-at-exit",
           "k.tma.store(c_map"),
    broken(hopper_v5.matmul, "barrier.sync", 0, gone, "init-visibility"),
    broken(hopper_v6.matmul, "cp.async.bulk.wait_group", 0, gone, "race",
           "k.tile.store(sC[group]", "k.tma.store(c_map"),
    broken(matmul_v7.matmul, "cp.async.bulk.wait_group", 0, with_(pending=2), "race", STORED, SENT),
    broken(matmul_v7.matmul, "barrier.sync", 3, gone, "race", STORED, pieces=1),
    broken(matmul_v8.matmul, "fence.sync_restrict", 0, gone, "race", "k.tma.load(b_map"),
    broken(matmul_v8.matmul, WAIT, 2, gone, EARLY),
    broken(matmul_v8.matmul, ARRIVE, 0, gone, "deadlock", "k.mbarrier.wait(peer_empty"),
    broken(matmul_v8.matmul, "cp.async.bulk.tensor.load", "", with_(multicast=None), "deadlock"),
    broken(copy.vector, "cp.async.bulk.wait_group", 0, with_(pending=2), "race", "k.bulk.load(",
           "k.bulk.store("),
    # the bytes inside the matrix: copies fill the box
    broken(copy.tensor, EXPECT, "", with_(bytes=Const(32 * (72 % 32) * 2)), "deadlock"),
    broken(matmul_fp8.matmul, "wgmma.wait_group", 1, gone, "wgmma-order",
           'k.tile.zip(acc, "mul", acc, by_row)', ctas=1, m=256),
    broken(matmul_fp8_blocks.matmul, "wgmma.mma_async", 0, with_(accumulate=Const(1)),
           "uninitialised-read", ctas=1, m=256),
    broken(matmul_fp8_blocks.matmul, "wgmma.wait_group", 0, gone, "wgmma-order",
           "self.k.tile.fma(self.total", ctas=1, m=256),
    broken(matmul_fp8_blocks.matmul, "wgmma.wait_group", 1, gone, "race",
           ctas=1, m=256, block_n=256, band=1, stages=1, pieces=1),
    # clusters
    broken(multicast.multicast, EXPECT, "", with_(bytes=Const(0)), EARLY),
    broken(push.push, EXPECT, 1, with_(bytes=Const(2048)), EARLY),
    broken(push.push, ARRIVE, "", gone, "deadlock", "k.mbarrier.wait(arrived", path="elements"),
    broken(push.push, ARRIVE, "", with_(sem="relaxed"), "race", path="elements"),
    broken(split_k.split_k, "fence.proxy.async", "", gone, "proxy-fence", "k.tile.copy_cluster(",
           "k.tile.store(partial"),
    broken(split_k.split_k, EXPECT, 1, with_(bytes=Const(64 * 64 * 4)), EARLY),
    broken(ring.ring, WAIT, 2, gone, "race", "k.tile.copy_cluster("),
    broken(matmul.matmul, ARRIVE, "", at_home, EARLY),
    # count 4 instead of 12: the consumers of any CTA may open the stage for all
    broken(matmul.matmul, INIT, 3, with_(count=Const(4)), EARLY),
    broken(matmul.matmul, "cp.async.bulk.tensor.load", 1, with_(multicast=Const(0b10001)),
           "out-of-bounds", "k.tma.load(b_map"),
    *(
        broken(kernel, "fence.mbarrier_init", "", gone, "init-visibility")
        for kernel in (matmul.matmul, multicast.multicast, push.push, ring.ring, split_k.split_k)
    ),
    # tensor memory
    *(
        broken(module.matmul, "tcgen05.dealloc", "", gone, "tmem-lifetime")
        for module in (matmul_v0, matmul_v6)
    ),
    *(
        broken(module.matmul, COMMIT, "k.tcgen05.commit(slot.empty", plain_arrive, "race",
               "multiply_tile(k, d, sA")
        for module in (matmul_v2, matmul_v3, matmul_v4, matmul_v5, matmul_v6)
    ),
    *(
        broken(module.matmul, WAIT, "result.acquire(", gone,
               "tcgen05-order phase-ambiguity phase-alias")
        for module in (matmul_v4, matmul_v5, matmul_v6)
    ),
    *(
        broken(module.matmul, "tcgen05.fence", "", gone, "tcgen05-order", strict="ptx")
        for module in (matmul_v0, matmul_v3, matmul_v4, matmul_v6)
    ),
    broken(matmul_v3.matmul, "tcgen05.mma", 0, with_(accumulate=Const(1)), "uninitialised-read",
           "multiply_tile(k, d, sA"),
    # cp.async writes through the generic proxy, the mma reads through the async proxy (U14)
    broken(matmul_v0.matmul, "fence.proxy.async", "", gone, "proxy-fence",
           "multiply_tile(k, d, sA", "k.cp_async.copy(dst", strict="ptx"),
    broken(matmul_v1.matmul, "fence.proxy.async", "", gone, "proxy-fence", "k.tile.store(sC",
           "k.tma.store(c_map"),
    # launch control; B040: the next request overwrites the slot through the async proxy
    broken(matmul_v5.matmul, "fence.proxy.async", "as tile, k.elected()", gone, "proxy-fence",
           "schedule.ask(", strict="ptx"),
    # pairs of CTAs
    broken(matmul_v6.matmul, EXPECT, "slot.commit_at(", at_home, "deadlock", "slot.wait("),
    broken(matmul_v6.matmul, WAIT, "# until the last commits have landed here", gone, "peer-exit",
           "k.tcgen05.commit(slot.empty, multicast=BOTH", m=256, n=64),
    broken(matmul_v6.matmul, COMMIT, "commit(slot.empty, multicast", with_(multicast=Const(1)),
           "deadlock"),
    broken(matmul_v6.matmul, ARRIVE, "result.release_at(LEADER)", at_home, "deadlock",
           "result.acquire(scope"),
    # attention
    broken(attention.attention, WAIT, "mbarrier.wait(self.o_rescaled", gone, "tcgen05-order",
           "k.tcgen05.st(self.O[q], self.partial)", queries=256, heads=1),
    broken(attention.attention, WAIT, "mbarrier.wait(self.result_full", gone, "race",
           "k.tile.store(self.sO[q], self.rounded)", queries=256, heads=1),
    # S overwrites P, which the product before reads: in practice such mma keep their order
    broken(attention.attention, WAIT, "# P has been read", gone, "tcgen05-order",
           queries=256, heads=1, strict="ptx"),
    # B047: the arrive on p_full without tcgen05.wait::st
    broken(attention.attention, "tcgen05.wait", "k.tcgen05.wait_st()", gone, "tcgen05-order",
           queries=256, heads=1),
    broken(attention.attention, ARRIVE, "mbarrier.arrive(self.p_full", gone, "deadlock",
           "mbarrier.wait(self.p_full", queries=256, heads=1),
    broken(hopper_attention.attention, "barrier.sync", "# P is complete", gone, "race",
           "k.tile.store(sP[group]", queries=128, heads=1),
    broken(hopper_attention.attention, "fence.proxy.async", 'k.fence.proxy_async("shared::cta")',
           gone, "proxy-fence", "k.tile.store(sP[group]", queries=128, heads=1),
    broken(attention_v1.attention, "wgmma.wait_group", "# the scores", with_(pending=2),
           "wgmma-order", 'k.tile.reduce(self.new_max, "max", self.scores)',
           queries=256, keys=384, heads=1, ctas=1),
    broken(attention_v1.attention, "wgmma.fence", 1, gone, "wgmma-order",
           queries=256, keys=384, heads=1, ctas=1),
    # turns are for speed only, but one that is not given stops all warps
    broken(attention_v1.attention, "barrier.arrive", "self.k.bar.arrive(", gone, "deadlock",
           "self.k.bar.sync(", queries=256, keys=384, heads=1, ctas=1),
    broken(attention_v1.attention, "cp.async.bulk.wait_group", "# the result has left the buffer",
           gone, "race", "k.tma.store(self.o_map", "self.k.tma.load(source",
           queries=256, keys=200, heads=1, ctas=1, block=80, in_place=True),
    # the kernels of NVIDIA/Fuser #5076
    broken(multi_role.multi_role, "barrier.sync", 1, gone, "barrier-lifetime"),
    broken(multi_role.multi_role, INIT, 1, with_(count=Const(128)), EARLY),
    broken(chained.chained, WAIT, 1, gone, "race", "k.bulk.load(indices", "k.mem.load(row"),
    broken(synchronous_producer.scale, "fence.proxy.async", "", gone, "proxy-fence"),
    broken(synchronous_producer.dequantise, "fence.proxy.async", "", gone, "proxy-fence"),
)  # fmt: skip


@pytest.mark.parametrize("row", BROKEN, ids=str)
def test_a_changed_instruction_is_found(row: Broken) -> None:
    report = check(row.program(), strict=row.strict)
    assert report.verdict == "failed", report
    assert report.rules & row.rules, report
    found = next(f for f in report.findings if f.rule in row.rules)
    named = {p.loc.line for p in found.participants}
    assert [text for text in row.lines if not row.places(text) & named] == [], found


@pytest.mark.parametrize(
    "row",
    [
        # wgmma.wait_group of one warp waits for the operation of all four (F5)
        broken(hopper_v0.matmul, "barrier.sync", 2, gone, ""),
        *(
            broken(module.matmul, "tcgen05.fence", "", gone, "")
            for module in (matmul_v0, matmul_v4, matmul_v6)
        ),
        broken(attention.attention, "tcgen05.fence", "", gone, "", queries=256, heads=1),
        broken(matmul_v5.matmul, "fence.proxy.async", "as tile, k.elected()", gone, ""),
        broken(attention.attention, WAIT, "# P has been read", gone, "", queries=256, heads=1),
    ],
    ids=str,
)  # fmt: skip
def test_practice_does_without_it(row: Broken) -> None:
    assert check(row.program()).verdict == "proved"


def test_copies_of_a_pair_signal_only_the_pair() -> None:
    load = "cp.async.bulk.tensor.load"
    with pytest.raises(InvalidProgram) as caught:
        check(broken(matmul_v6.matmul, load, "", with_(cta_group=1), "").program())
    assert {d.rule for d in caught.value.diagnostics} == {"operand"}
