"""Tensor copies that are no boxes, and instructions of Blackwell on floating-point numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from tests.ptx.test_check import HEAD, INIT, WAIT
from tilesim.arith.types import DType, f32, s32, u32
from tilesim.checker import Report, check
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import InvalidProgram
from tilesim.ir.mir import Mir
from tilesim.ir.ops.tma import TmaLoad, TmaPrefetch, TmaReduce, TmaStore
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Contents, Im2col, Launch, Map, Parameter, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import LaunchError, Unsupported

_Copy = TypeVar("_Copy", TmaLoad, TmaStore, TmaReduce, TmaPrefetch)
#: images of 4 by 3 pixels of 64 channels; a copy takes 8 pixels
IMAGE = Map(
    "a", "bf16", (64, 4, 3, 2), (128, 512, 1536), (),
    im2col=Im2col((-1, 0), (0, -1), 64, 8),
)  # fmt: skip
ROWS = Map("a", "bf16", (64, 16), (128,), (64, 1))
TILED = Map("a", "bf16", (64, 16), (128,), (64, 8))


def program(body: str, *values: Parameter, target: str = "sm_100a", cluster: int = 1) -> Mir:
    params = ", ".join(f".param .align 64 .b8 {value.name}[128]" for value in values)
    text = HEAD.format(params=params).replace("sm_90a", target)
    module = read(f"{text}{body}\nret;\n}}\n", "k.ptx")
    ctas = (cluster, 1, 1)
    launch = Launch("k", ctas, (32, 1, 1), ctas, 4096, params=values)
    return lower(module, module.entries[0], launch)


def copied(form: str, value: Map, nbytes: int, more: str = "") -> Report:
    body = (
        f"{INIT}mov.u32 %r3, 0; add.u32 %r8, %r1, 1024; fence.proxy.async.shared::cta;\n"
        f"@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], {nbytes};\n"
        f"@%p0 cp.async.bulk.tensor.{form};\n{WAIT}{more}"
    )
    return check(program(body, value))


#: two rows of 128 elements of 4 bits, and pixels of as many
PACKED = Map("a", "b4x16_p64", (256, 16), (128,), (128, 2))
PACKED_PIXELS = Map(
    "a", "b4x16_p64", (128, 4, 3, 2), (64, 256, 768), (),
    im2col=Im2col((-1, 0), (0, -1), 128, 8),
)  # fmt: skip
#: 8 pixels of 64 channels along W, and two more of the halo
ALONG_W = Map(
    "a", "bf16", (64, 4, 3, 2), (128, 512, 1536), (), swizzle=128,
    im2col=Im2col((-1,), (0,), 64, 8, "w"),
)  # fmt: skip
TILE = "2d.shared::cta.global.mbarrier::complete_tx::bytes [%r8], [a, {0, 1}], [%r1]"
PIXELS = (
    "4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r8], [a, {0, -1, 0, 1}], [%r1], "
    "{1, 0}"
)
GATHER = (
    "2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r8], [a, {0, 5, 1, 9, 1}], "
    "[%r1]"
)


WIDE = PIXELS.replace("im2col", "im2col::w").replace("{1, 0}", "{2, 0}")


@pytest.mark.parametrize(
    ("form", "value", "nbytes"),
    [(PIXELS, IMAGE, 1024), (GATHER, ROWS, 512), (WIDE, ALONG_W, 1280)],
)
def test_copies_of_rows_complete_their_bytes(form: str, value: Map, nbytes: int) -> None:
    assert copied(form, value, nbytes).verdict == "proved"
    assert copied(form, value, nbytes + 128).rules == {"deadlock"}
    inside = f"ld.shared.u32 %r5, [%r1+{1024 + nbytes - 4}];\n"
    assert copied(form, value, nbytes, inside).verdict == "proved"
    assert copied(form, value, nbytes, again(form)).rules == {"async-at-exit", "race"}


#: eight rows of 128 bytes
LINES = Map("a", "f32", (64, 16), (256,), (32, 8), swizzle=128)


def test_a_swizzle_with_larger_atoms_moves_whole_rows() -> None:
    """CUTLASS's epilogues store 32-bit results so: what is accessed is what other atoms access."""
    atoms = replace(LINES, atoms=32)
    for value in (LINES, atoms):
        assert copied(TILE, value, 1024).verdict == "proved"
        assert copied(TILE, value, 1152).rules == {"deadlock"}
        assert copied(TILE, value, 1024, again(TILE)).rules == {"async-at-exit", "race"}
    for narrow in (replace(atoms, box=(16, 8)), replace(atoms, swizzle=64, box=(16, 8))):
        with pytest.raises(LaunchError, match="rows of 128 bytes only"):
            copied(TILE, narrow, 512)
    head = HEAD.format(params=".param .align 64 .b8 a[128], .param .u64 p")
    copy = f"@%p0 cp.async.bulk.tensor.{TILE};\n"
    module = read(f"{head}{INIT}add.u32 %r8, %r1, 1024;\n{copy}ret;\n}}\n", "k.ptx")
    values = atoms, Pointer("a", 4096, contents=Contents("u32", (1, 2)))
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 4096, params=values)
    with pytest.raises(LaunchError, match="contents that are copied with atoms of 32 bytes"):
        lower(module, module.entries[0], launch)


@pytest.mark.parametrize(("form", "value", "rows"), [(TILE, PACKED, 2), (PIXELS, PACKED_PIXELS, 8)])
def test_packed_elements_take_more_room_than_bytes_complete(
    form: str, value: Map, rows: int
) -> None:
    """Of each row 64 bytes come, and take 128 of shared memory, gaps among them."""
    assert copied(form, value, 64 * rows).verdict == "proved"
    assert copied(form, value, 128 * rows).rules == {"deadlock"}
    last = f"ld.shared.u32 %r5, [%r1+{1024 + 128 * rows - 4}];\n"
    store = f"@%p0 cp.async.bulk.tensor.{form};\nst.shared.u32 [%r1+{1024 + 128 * rows - 4}], 1;\n"
    assert copied(form, value, 64 * rows, last).verdict == "proved"
    assert "race" in copied(form, value, 64 * rows, store).rules


def again(form: str) -> str:
    """Reads what the same copy writes once more."""
    return (
        "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;\n"
        f"@%p0 cp.async.bulk.tensor.{form};\nld.shared.u32 %r5, [%r1+1024];\n"
    )


def test_a_mask_of_bytes_stands_behind_the_policy() -> None:
    """Of each 16 bytes the first four are stored; a policy of 0 is no mask."""

    def run(byte: int) -> Report:
        body = (
            "mov.u32 %r1, smem; mov.u32 %r3, %tid.x; shl.b32 %r4, %r3, 2; add.u32 %r4, %r4, %r1;\n"
            "st.shared.b32 [%r4], 0; fence.proxy.async.shared::cta; bar.warp.sync -1;\n"
            "ld.param.u64 %rd1, [b]; setp.eq.u32 %p0, %r3, 0; setp.eq.u32 %p2, %r3, 5;\n"
            "mov.u64 %rd2, 0; .reg .b16 %mask; mov.b16 %mask, 15;\n"
            "@%p0 cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.cp_mask "
            "[%rd1], [%r1], 64, %rd2, %mask;\n@%p0 cp.async.bulk.commit_group;\n"
            f"@%p2 st.global.b32 [%rd1+{byte}], 0;\n@%p0 cp.async.bulk.wait_group 0;\nret;\n}}\n"
        )
        head = HEAD.format(params=".param .u64 b").replace("sm_90a", "sm_100a")
        module = read(head + body, "k.ptx")
        launch = Launch(
            "k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 4096, params=(Pointer("b", 64),)
        )  # fmt: skip
        return check(lower(module, module.entries[0], launch))

    assert run(20).verdict == "proved"
    assert run(16).rules == {"race"}


LINE = Map("a", "f32", (64,), (), (16,))


@pytest.mark.parametrize("spelled", ["-4", "4294967292", "%r4"])
def test_a_copy_may_begin_before_its_tensor(spelled: str) -> None:
    """It reads the first 12 elements, of which another lane stores one, or the one behind them."""

    def run(element: int) -> Report:
        body = (
            f"{INIT}mov.u32 %r3, %tid.x; sub.s32 %r4, %r3, 4; add.u32 %r8, %r1, 1024;\n"
            "setp.eq.u32 %p2, %r3, 5; ld.param.u64 %rd1, [b];\n"
            "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;\n"
            "@%p0 cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes "
            f"[%r8], [a, {{{spelled}}}], [%r1];\n@%p2 st.global.b32 [%rd1+{4 * element}], 0;\n"
            f"{WAIT}ret;\n}}\n"
        )
        head = HEAD.format(params=".param .align 64 .b8 a[128], .param .u64 b")
        module, values = read(head + body, "k.ptx"), (LINE, Pointer("a", 256))
        launch = Launch("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 4096, params=values)
        return check(lower(module, module.entries[0], launch))

    assert run(12).verdict == "proved"
    for element in (0, 11):
        assert run(element).rules == {"race"}


@pytest.mark.parametrize("dtype", [s32, u32])
def test_unsigned_variables_hold_coordinates_below_zero(dtype: DType) -> None:
    """A load may begin there, a store may not (B19)."""

    def run(element: int, *, stores: bool = False) -> Report:
        @kernel(warps=1)
        def copying(k: Builder) -> None:
            X, tile = k.tensor("X", f32, (64,)), k.shared("tile", f32, (16,))
            through, loaded = k.tensor_map(X, (16,)), k.mbarriers("loaded", 1)
            at = k.var("at", 0, dtype)
            k.assign(at, at - 4)
            with k.one_thread():
                k.mbarrier.init(loaded[0], 1)
                k.mbarrier.arrive_expect_tx(loaded[0], 64)
                k.tma.load(through, tile, (at,), loaded[0])
            k.mem.store(X[element], 1.0)
            k.mbarrier.wait(loaded[0], 0)
            if stores:
                with k.one_thread():
                    k.tma.store(through, tile, (at,))
                    k.bulk.commit_group()
                    k.bulk.wait_group(0)

        return check(copying.build())

    assert run(12).verdict == "proved"
    assert run(11).rules == {"race"}
    assert run(12, stores=True).rules == {"out-of-bounds"}


def test_coordinates_and_offsets_are_in_the_order_of_the_shape() -> None:
    body = f"{INIT}mov.u32 %r8, %r1;\n@%p0 cp.async.bulk.tensor.{{form}};\n"
    (load,) = _found(program(body.format(form=PIXELS), IMAGE), TmaLoad)
    assert (load.mode, *map(str, load.coords)) == ("im2col", "1", "0", "-1", "0")
    assert tuple(map(str, load.info)) == ("0", "1")
    assert (load.map.box, load.map.lower, load.map.upper) == ((8, 64), (0, -1), (-1, 0))
    (load,) = _found(program(body.format(form=GATHER), ROWS), TmaLoad)
    assert (load.mode, *map(str, load.coords)) == ("tile::gather4", "5", "1", "9", "1", "0")
    scatter = "2d.global.shared::cta.tile::scatter4.bulk_group [a, {0, 5, 1, 9, 2}], [%r8]"
    before = GATHER.replace(".tile::gather4", "").replace("2d.", "2d.tile::gather4.")
    (load,) = _found(program(body.format(form=before), ROWS), TmaLoad)
    assert load.mode == "tile::gather4"
    (store,) = _found(program(body.format(form=scatter), ROWS), TmaStore)
    assert (store.mode, *map(str, store.coords)) == ("tile::scatter4", "5", "1", "9", "2", "0")


@pytest.mark.parametrize("fence", ["", "fence.proxy.async.shared::cta; "])
def test_pixels_are_added_to_what_is_there(fence: str) -> None:
    form = "4d.global.shared::cta.add.im2col_no_offs.bulk_group [a, {0, 0, 2, 1}], [%r8]"
    mir = program(
        f"{INIT}add.u32 %r8, %r1, 1024; mov.u32 %r6, %tid.x; shl.b32 %r6, %r6, 5;\n"
        "add.u32 %r6, %r6, %r8; st.shared.v4.b32 [%r6+16], {0,0,0,0}; "
        f"st.shared.v4.b32 [%r6], {{0,0,0,0}}; {fence}bar.sync 0;\n"
        f"@%p0 cp.reduce.async.bulk.tensor.{form};\n"
        "@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;",
        replace(IMAGE, im2col=Im2col((0, 0), (0, 0), 64, 8)),
    )
    (reduction,) = _found(mir, TmaReduce)
    assert (reduction.mode, *map(str, reduction.coords)) == ("im2col_no_offs", "1", "2", "0", "0")
    found = check(mir)
    if fence:
        assert found.verdict == "proved"
        return
    (finding,) = found.findings
    first = {p.loc.line for p in finding.participants}
    assert (finding.rule, max(first) - min(first)) == ("proxy-fence", 1)


@pytest.mark.parametrize(
    ("form", "value", "mode", "coords", "info"),
    [
        ("4d.L2.global.im2col [a, {0, 3, 2, 1}], {1, 0}", IMAGE, "im2col", "1230", "01"),
        ("2d.L2.global.tile::gather4 [a, {0, 5, 1, 9, 1}]", ROWS, "tile::gather4", "51910", ""),
        ("2d.L2.global [a, {0, 1}]", ROWS, "tile", "10", ""),
    ],
)
def test_what_is_prefetched(form: str, value: Map, mode: str, coords: str, info: str) -> None:
    mir = program(f"{INIT}@%p0 cp.async.bulk.prefetch.tensor.{form};\n", value)
    (hint,) = _found(mir, TmaPrefetch)
    assert hint.mode == mode
    assert "".join(map(str, hint.coords)) == coords
    assert "".join(map(str, hint.info)) == info
    assert check(mir).verdict == "proved"


@pytest.mark.parametrize(
    ("right", "wrong", "value"),
    [
        ("2d.L2.global [a, {%r3, 1}]", "2d.L2.global [a, {%r7, 1}]", TILED),
        ("4d.L2.global.im2col [a, {0, 3, 2, 1}], {%h1, 0}",
         "4d.L2.global.im2col [a, {0, 3, 2, 1}], {%h2, 0}", IMAGE),
    ],
)  # fmt: skip
def test_what_cannot_be_prefetched(right: str, wrong: str, value: Map) -> None:
    """The operand is one that a copy could read (B13): it starts at 16 bytes (B37), offsets of
    im2col fit their fields (B23)."""
    start = (
        ".reg .b16 %h<3>; mov.u32 %r3, %ctaid.x; add.u32 %r3, %r3, 8; add.u32 %r7, %r3, 3;\n"
        "cvt.u16.u32 %h1, %r3; add.u16 %h2, %h1, 256;\n"
    )
    prefetch = f"{INIT}{start}@%p0 cp.async.bulk.prefetch.tensor."
    assert check(program(f"{prefetch}{right};\n", value)).verdict == "proved"
    found = check(program(f"{prefetch}{wrong};\n", value))
    assert found.verdict == "failed"
    assert found.rules == {"out-of-bounds"}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [a, {8, 1}]", ".tile::w"),
        ("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [a, {8, 1}], [%r1]",
         ".tile.ignore_oob"),
    ],
)  # fmt: skip
def test_a_qualifier_that_no_rule_knows_is_refused(right: str, wrong: str) -> None:
    assert len(program(f"{INIT}{right};\n", TILED).code)
    with pytest.raises(Unsupported, match=r"is not modelled (here|with these operands)"):
        program(f"{INIT}{right.replace('.tile', wrong)};\n", TILED)


def test_a_prefetch_names_a_place_in_each_dimension() -> None:
    with pytest.raises(InvalidProgram, match="3 coordinates for a 2-D tensor map"):
        check(program(f"{INIT}@%p0 cp.async.bulk.prefetch.tensor.3d.L2.global [a, {{0, 1, 0}}];\n",
                      TILED))  # fmt: skip


def _found(mir: Mir, kind: type[_Copy]) -> list[_Copy]:
    return [step.what for step in mir.code if isinstance(step.what, kind)]


#: both CTAs of a pair load a tile of their own, of which CTA 0's mbarrier hears
_PAIR = (
    f"{INIT}fence.mbarrier_init.release.cluster;\n"
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
    "mov.u32 %r3, 0; mapa.shared::cluster.u32 %r4, %r1, %r3; mov.u32 %r6, %cluster_ctarank;\n"
    "setp.eq.u32 %p2, %r6, 0; and.pred %p3, %p0, %p2; add.u32 %r8, %r1, 1024;\n"
    "@%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;\n"
    "@%p0 cp.async.bulk.tensor.2d.{space}.global.mbarrier::complete_tx::bytes{group} "
    "[%r8], [a, {{0, 1}}], [%r4];\n@!%p2 bra E;\n"
    f"{WAIT}E: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
)


@pytest.mark.parametrize(
    ("space", "group"),
    [
        ("shared::cta", ".cta_group::1"), ("shared::cta", ".cta_group::2"),
        ("shared::cluster", ""), ("shared::cluster", ".cta_group::1"),
    ],
)  # fmt: skip
def test_the_mbarrier_of_a_pair_may_be_in_the_other_cta(space: str, group: str) -> None:
    """Where the tile is named as one of the cluster, not of the executing CTA (B26)."""
    tile = Map("a", "bf16", (64, 16), (128,), (64, 2))
    right, wrong = (
        check(program(_PAIR.format(space=space, group=group), tile, cluster=2))
        for space, group in (("shared::cluster", ".cta_group::2"), (space, group))
    )
    assert right.verdict == "proved"
    assert wrong.rules == {"out-of-bounds"}
    assert wrong.findings[0].participants[0].cta == 1


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_a_cta_ends_behind_its_copy_that_the_other_of_the_pair_tracks(strict: Strict) -> None:
    """CTA 0 knows that what CTA 1 writes to itself is there; CTA 1 needs to know, too (B34)."""
    tile = Map("a", "bf16", (64, 16), (128,), (64, 2))
    meets = _PAIR.format(space="shared::cluster", group=".cta_group::2")
    before, _, after = meets.rpartition("barrier.cluster.wait.aligned;")
    right, wrong = (
        check(program(text, tile, cluster=2), strict=strict)
        for text in (meets, f"{before}ret;{after}")
    )
    assert right.verdict == "proved"
    assert wrong.rules == {"peer-exit"}
    assert wrong.findings[0].participants[0].cta == 1


#: CTA 0 copies to one of the two, and CTA 1 waits for what comes
_TO_A_PEER = (
    f"{INIT}fence.mbarrier_init.release.cluster;\n"
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
    "mov.u32 %r3, 1; mapa.shared::cluster.u32 %r4, %r1, %r3; mov.u32 %r6, %cluster_ctarank;\n"
    "setp.eq.u32 %p2, %r6, 0; add.u32 %r8, %r1, 1024; add.u32 %r9, %r4, 1024;\n"
    "ld.param.u64 %rd1, [b];\n@%p2 bra C;\n"
    "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;\n"
    f"{WAIT}bra E;\nC: @%p0 {{copy}};\n"
    "E: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
)
_TRACKED = "shared::cluster.global.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    "copy",
    [
        f"cp.async.bulk.tensor.2d.{_TRACKED} [%r{{0}}], [a, {{{{0, 1}}}}], [%r4]",
        f"cp.async.bulk.{_TRACKED} [%r{{0}}], [%rd1], 256, [%r4]",
    ],
)
def test_a_copy_completes_on_an_mbarrier_of_the_cta_that_it_writes(copy: str) -> None:
    """No other one, also if that CTA waits and then tells the first one (B26)."""
    tile = Map("a", "bf16", (64, 16), (128,), (64, 2))
    head = HEAD.format(params=".param .align 64 .b8 a[128], .param .u64 b")

    def run(place: int) -> Report:
        body = _TO_A_PEER.format(copy=copy.format(place))
        module = read(f"{head}{body}\nret;\n}}\n", "k.ptx")
        values = (tile, Pointer("b", 256))
        launch = Launch("k", (2, 1, 1), (32, 1, 1), (2, 1, 1), 4096, params=values)
        return check(lower(module, module.entries[0], launch))

    assert run(9).verdict == "proved"
    assert run(8).rules == {"out-of-bounds"}


@pytest.mark.parametrize("grid", [1, 300])
@pytest.mark.parametrize(
    ("form", "info", "value", "nbytes", "most"),
    [(PIXELS, "{1, 0}", IMAGE, 1024, 255), (WIDE, "{2, 0}", ALONG_W, 1280, 31)],
)
def test_offsets_in_registers_fit_their_fields(
    form: str, info: str, value: Map, nbytes: int, most: int, grid: int
) -> None:
    """Also in the last CTA only (B23)."""
    copy = form.replace(info, info.replace("0}", "%offset}"))

    def run(last: int) -> Report:
        body = (
            f"{INIT}add.u32 %r8, %r1, 1024; mov.u32 %r3, %ctaid.x; .reg .b16 %offset;\n"
            f"setp.eq.u32 %p2, %r3, {grid - 1}; selp.u32 %r4, {last}, 0, %p2;\n"
            "cvt.u16.u32 %offset, %r4;\n"
            f"@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], {nbytes};\n"
            f"@%p0 cp.async.bulk.tensor.{copy};\n{WAIT}ret;\n}}\n"
        )
        head = HEAD.format(params=".param .align 64 .b8 a[128]").replace("sm_90a", "sm_100a")
        module = read(head + body, "k.ptx")
        launch = Launch("k", (grid, 1, 1), (32, 1, 1), (1, 1, 1), 4096, params=(value,))
        return check(lower(module, module.entries[0], launch))

    assert run(most).verdict == "proved"
    for beyond in (most + 1, -1):
        assert run(beyond).rules == {"out-of-bounds"}
