"""``k.tile.copy_cluster``: which path is chosen, what it emits, what is rejected and why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilesim.arith.types import bf16, f32, s32
from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.dsl.copy_cluster import CopyPlan, Path
from tilesim.errors import InvalidProgram
from tilesim.ir.declarations import GlobalTensor, SharedTensor, View, ds
from tilesim.ir.op import Op
from tilesim.ir.ops.bulk import BulkCopy, BulkLoad
from tilesim.ir.ops.cluster import StAsync
from tilesim.ir.ops.mbarrier import MbarrierArrive
from tilesim.ir.ops.scalar import Store
from tilesim.ir.ops.tma import TmaLoad
from tilesim.ir.program import If, instructions, walk
from tilesim.ir.target import TARGETS, Target
from tilesim.lib.opening import open_cluster
from tilesim.sim.machine.simulate import simulate

ROWS, COLUMNS = 8, 64


def builder(ctas: int = 4, **launch: Any) -> Builder:
    """A kernel of one cluster of ``ctas`` CTAs with one warp each."""
    k = Builder("k", warps=1)
    k.launch(grid=ctas, cluster=ctas, **launch)
    return k


def only(k: Builder, kind: type[Op]) -> list[Any]:
    """The instructions of a kind that were emitted."""
    return [op for op in instructions(k.finish()) if isinstance(op, kind)]


def moves(k: Builder) -> dict[type[Op], int]:
    """How many instructions of each kind that moves data."""
    kinds: tuple[type[Op], ...] = (TmaLoad, BulkLoad, BulkCopy, Store, StAsync)
    return {kind: len(only(k, kind)) for kind in kinds if only(k, kind)}


def why(action: Any) -> str:
    """The message of the only diagnostic; it must point to this file."""
    with pytest.raises(InvalidProgram) as error:
        action()
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.loc.file.endswith("test_copy_cluster.py")
    return f"{diagnostic.rule}: {diagnostic.message}"


# ------------------------------------------------------------------ to a peer: paths


def peer(
    k: Builder, shape: tuple[int, ...] = (ROWS, COLUMNS), dtype: Any = f32, **options: Any
) -> tuple[SharedTensor, SharedTensor, Any]:
    """Two shared tensors and a barrier."""
    src = k.shared("src", dtype, shape, **options)
    return src, k.shared("dst", dtype, shape), k.mbarriers("bar")


def test_contiguous_regions_are_one_bulk_copy() -> None:
    k = builder()
    src, dst, bar = peer(k)
    plan = k.tile.copy_cluster(src, dst, dst_cta=1, barrier=bar)
    assert plan == CopyPlan("bulk", 1, src.nbytes, 0)
    assert moves(k) == {BulkCopy: 1}
    (copy,) = only(k, BulkCopy)
    assert (str(copy.dst), str(copy.src), str(copy.mbar)) == (
        "dst[:, :]@1", "src[:, :]", "bar[0]@1",
    )  # fmt: skip
    assert copy.loc.file.endswith("test_copy_cluster.py")


def test_whole_rows_of_a_larger_tensor_are_one_bulk_copy() -> None:
    k = builder()
    src, dst, bar = peer(k, (3, ROWS, COLUMNS))
    plan = k.tile.copy_cluster(src[1], dst[2], dst_cta=1, barrier=bar)
    assert (plan.path, plan.bytes) == ("bulk", ROWS * COLUMNS * 4)


def test_columns_are_one_bulk_copy_per_row() -> None:
    k = builder()
    src, dst, bar = peer(k)
    plan = k.tile.copy_cluster(src[:, 16:48], dst[:, 0:32], dst_cta=1, barrier=bar)
    assert plan == CopyPlan("rows", ROWS, ROWS * 32 * 4, 0)
    assert moves(k) == {BulkCopy: ROWS}
    assert [str(copy.src) for copy in only(k, BulkCopy)][:2] == ["src[0, 16:+32]", "src[1, 16:+32]"]


def test_one_strided_side_is_enough_to_split_both() -> None:
    k = builder()
    wide = k.shared("wide", f32, (ROWS, 2 * COLUMNS))
    _, dst, bar = peer(k)
    plan = k.tile.copy_cluster(wide[:, :COLUMNS], dst, dst_cta=1, barrier=bar)
    assert (plan.path, plan.copies) == ("rows", ROWS)


def test_dimensions_are_split_only_as_far_as_needed() -> None:
    k = builder()
    src, dst, bar = peer(k, (4, 3, ROWS, COLUMNS))
    plan = k.tile.copy_cluster(src[:, 1:3], dst[:, 0:2], dst_cta=1, barrier=bar)
    assert plan == CopyPlan("rows", 4, 4 * 2 * ROWS * COLUMNS * 4, 0)
    k = builder()
    src, dst, bar = peer(k, (4, 3, ROWS, COLUMNS))
    plan = k.tile.copy_cluster(src[:, 1:3, :, 4:8], dst[:, 0:2, :, 4:8], dst_cta=1, barrier=bar)
    assert plan == CopyPlan("rows", 4 * 2 * ROWS, 4 * 2 * ROWS * 16, 0)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (slice(0, 6), "has 24 bytes, not a multiple of 16"),
        (slice(2, 34), "may start at an address that is not 16-byte aligned"),
    ],
)
def test_rows_that_bulk_copies_cannot_move_are_single_elements(columns: slice, reason: str) -> None:
    k = builder()
    src, dst, bar = peer(k)
    plan = k.tile.copy_cluster(src[:, columns], dst[:, columns], dst_cta=1, barrier=bar)
    elements = ROWS * (columns.stop - columns.start)
    assert plan == CopyPlan("elements", -(-elements // 32), 0, 1)
    assert set(moves(k)) == {Store}
    (arrive,) = only(k, MbarrierArrive)
    assert (str(arrive.mbar), arrive.sem, arrive.scope) == ("bar[0]@1", "release", "cluster")
    assert reason in why(
        lambda: k.tile.copy_cluster(
            src[:, columns], dst[:, columns], dst_cta=1, barrier=bar, path="rows"
        )
    )


def test_offset_of_unknown_alignment_is_not_taken_for_aligned() -> None:
    k = builder()
    src, dst, bar = peer(k, (256,))
    odd, even = k.cluster_rank * 2, k.cluster_rank * 8
    assert k.tile.plan_cluster_copy(src[ds(odd, 32)], dst[0:32], dst_cta=1, barrier=bar).arrivals
    plan = k.tile.plan_cluster_copy(src[ds(even, 32)], dst[0:32], dst_cta=1, barrier=bar)
    assert plan.path == "bulk"


@pytest.mark.parametrize("side", ["src", "dst"])
def test_swizzled_tensors_are_copied_element_by_element(side: str) -> None:
    k = builder()
    tensors = {
        name: k.shared(name, bf16, (ROWS, 64), swizzle=128 if name == side else 0)
        for name in ("src", "dst")
    }
    bar = k.mbarriers("bar")
    plan = k.tile.copy_cluster(tensors["src"], tensors["dst"], dst_cta=1, barrier=bar)
    assert plan.path == "elements"


def test_different_element_types_are_converted_element_by_element() -> None:
    k = builder()
    src, dst = k.shared("src", bf16, (64,)), k.shared("dst", f32, (64,))
    plan = k.tile.copy_cluster(src, dst, dst_cta=1, barrier=k.mbarriers("bar"))
    assert plan == CopyPlan("elements", 2, 0, 1)


def test_without_a_barrier_elements_are_stored_and_nobody_arrives() -> None:
    k = builder()
    src, dst, _ = peer(k)
    plan = k.tile.copy_cluster(src, dst, dst_cta=1)
    assert plan == CopyPlan("elements", ROWS * COLUMNS // 32, 0, 0)
    assert not only(k, MbarrierArrive)


def test_planning_emits_nothing() -> None:
    k = builder()
    src, dst, bar = peer(k)
    before = list(instructions(k.finish()))
    plan = k.tile.plan_cluster_copy(src, dst, dst_cta=1, barrier=bar)
    assert list(instructions(k.finish())) == before
    assert plan == k.tile.copy_cluster(src, dst, dst_cta=1, barrier=bar)


def test_two_copies_of_elements_have_registers_of_their_own() -> None:
    k = builder()
    src, dst, bar = peer(k)
    for _ in range(2):
        k.tile.copy_cluster(src, dst, dst_cta=1, barrier=bar, path="elements")
    names = [v.name for v in k.finish().variables]
    assert {"copied", "copied_1"} <= set(names)
    assert len(names) == len(set(names))


# ------------------------------------------------------------------ to a peer: equal bytes


def transferred(path: Path | None, where: tuple[slice, ...], dtype: Any) -> NDArray[Any]:
    """What rank 1 has after rank 0 copied ``where`` of a 16 x 64 tensor into its own ``where``."""
    k = builder(2)
    X, Y = k.tensor("X", dtype, (16, 64)), k.tensor("Y", dtype, (16, 64))
    src, dst, bar = peer(k, (16, 64), dtype)
    part = k.fragment("part", dtype, (16, 64))
    plan = k.tile.plan_cluster_copy(src[where], dst[where], dst_cta=1, barrier=bar, path=path)
    loaded = k.mbarriers("loaded")
    open_cluster(k, (loaded, 1), (bar, 1 + plan.arrivals))
    k.tile.fill(part, 0)
    k.tile.store(dst, part)
    k.fence.proxy_async("shared::cta")
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(0)), k.role("sender", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(loaded, X.nbytes)
            k.bulk.load(src, X, loaded)
        k.mbarrier.wait(loaded, 0)
        done = k.tile.copy_cluster(src[where], dst[where], dst_cta=1, barrier=bar, path=path)
        assert done == plan
    with k.if_(k.cluster_rank.eq(1)), k.role("receiver", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(bar, plan.bytes)
        k.mbarrier.wait(bar, 0, scope="cluster")
        k.tile.load(part, dst)
        k.tile.store(Y, part)
    k.cluster.sync()
    program = k.finish()
    assert check(program).verdict == "proved"
    given = np.arange(1, 1025).reshape(16, 64)
    run = simulate(program, {"X": given}, policy="random", seed=3)
    assert run.findings == ()
    expected = np.zeros((16, 64))
    expected[where] = run_input(given, dtype)[where]
    np.testing.assert_array_equal(run.outputs["Y"].astype(np.float64), expected)
    return run.outputs["Y"]


def run_input(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """``values`` as the tensor of this type holds them."""
    from tilesim.arith.types import numpy_dtype

    return values.astype(numpy_dtype(dtype)).astype(np.float64)


@pytest.mark.parametrize("dtype", [f32, bf16, s32], ids=str)
def test_the_three_paths_give_equal_bytes(dtype: Any) -> None:
    whole = (slice(4, 12), slice(0, 64))
    paths: tuple[Path, ...] = ("bulk", "rows", "elements")
    results = [transferred(path, whole, dtype).tobytes() for path in paths]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("dtype", [f32, bf16, s32], ids=str)
def test_rows_and_elements_give_equal_bytes_of_a_strided_region(dtype: Any) -> None:
    box = (slice(3, 10), slice(16, 48))
    rows, elements = (transferred(path, box, dtype) for path in ("rows", "elements"))
    assert rows.tobytes() == elements.tobytes()


def test_region_that_is_no_multiple_of_a_warp_is_copied_whole() -> None:
    transferred(None, (slice(3, 8), slice(1, 8)), f32)


# ------------------------------------------------------------------ multicast: paths


def source(k: Builder, rows: int = 4 * ROWS) -> tuple[View, SharedTensor, Any]:
    """This CTA's rows of a global tensor, a tile and a barrier."""
    X = k.tensor("X", f32, (rows, COLUMNS))
    return (
        X[ds(k.cluster_rank * ROWS, ROWS)],
        k.shared("tile", f32, (ROWS, COLUMNS)),
        k.mbarriers("bar"),
    )


def whole(view: View) -> GlobalTensor:
    """The global tensor of a view."""
    assert isinstance(view.tensor, GlobalTensor)
    return view.tensor


@pytest.mark.parametrize(
    ("mask", "lowest", "loads"), [(0b0011, 0, 2), (0b1100, 2, 2), (0b1010, 1, 2), (0b1111, 0, 1)]
)
def test_lowest_rank_of_the_mask_issues_and_ranks_outside_load(
    mask: int, lowest: int, loads: int
) -> None:
    k = builder()
    src, tile, bar = source(k)
    plan = k.tile.copy_cluster(src, tile, cluster_mask=mask, barrier=bar)
    assert plan == CopyPlan("bulk", 1, tile.nbytes, 0)
    issued = only(k, BulkLoad)
    assert [str(op.multicast) for op in issued] == [str(mask), "None"][:loads]
    conditions = [str(stmt.cond) for stmt in walk(k.finish().body) if isinstance(stmt, If)]
    outside = f"((({mask} >> cluster_rank) & 1) == 0)"
    assert conditions[1:] == [f"(cluster_rank == {lowest})", outside][:loads]


def test_tensor_map_makes_it_a_tensor_copy() -> None:
    k = builder()
    src, tile, bar = source(k)
    x_map = k.tensor_map(whole(src), (ROWS, COLUMNS))
    plan = k.tile.copy_cluster(src, tile, cluster_mask=0b11, barrier=bar, map=x_map)
    assert plan == CopyPlan("tensor", 1, tile.nbytes, 0)
    first, second = only(k, TmaLoad)
    assert (str(first.multicast), second.multicast) == ("3", None)
    assert first.coords == src.offsets


def test_multicast_of_columns_is_one_multicast_per_row() -> None:
    k = builder()
    src, tile, bar = source(k)
    plan = k.tile.copy_cluster(src[:, :32], tile[:, :32], cluster_mask=0b1111, barrier=bar)
    assert plan == CopyPlan("rows", ROWS, ROWS * 32 * 4, 0)
    assert [str(op.multicast) for op in only(k, BulkLoad)] == ["15"] * ROWS


@pytest.mark.parametrize("with_map", [True, False])
def test_multicast_delivers_the_same_with_and_without_a_tensor_map(with_map: bool) -> None:
    k = builder()
    src, tile, bar = source(k)
    Y, part = k.tensor("Y", f32, (4 * ROWS, COLUMNS)), k.fragment("part", f32, (ROWS, COLUMNS))
    x_map = k.tensor_map(whole(src), (ROWS, COLUMNS))
    open_cluster(k, (bar, 1))
    plan = k.tile.copy_cluster(
        src, tile, cluster_mask=0b0101, barrier=bar, map=x_map if with_map else None
    )
    with k.elected():
        k.mbarrier.arrive_expect_tx(bar, plan.bytes)
    k.mbarrier.wait(bar, 0, scope="cluster")
    k.tile.load(part, tile)
    k.tile.store(Y[ds(k.cluster_rank * ROWS, ROWS)], part)
    k.cluster.sync()
    given = np.arange(4 * ROWS * COLUMNS).reshape(4, ROWS, COLUMNS)
    run = simulate(k.finish(), {"X": given.reshape(4 * ROWS, COLUMNS)})
    assert run.findings == ()
    np.testing.assert_array_equal(run.outputs["Y"].reshape(given.shape), given[[0, 1, 0, 3]])


# ------------------------------------------------------------------ what is rejected


def test_mask_and_destination_exclude_each_other() -> None:
    k = builder()
    src, dst, bar = peer(k)
    both = why(lambda: k.tile.copy_cluster(src, dst, cluster_mask=3, dst_cta=1, barrier=bar))
    assert "both of cluster_mask and dst_cta" in both
    neither = why(lambda: k.tile.copy_cluster(src, dst, barrier=bar))
    assert "neither of cluster_mask and dst_cta" in neither


def test_mask_must_be_known_when_the_kernel_is_built() -> None:
    k = builder()
    src, tile, bar = source(k)
    for mask in (1 << k.cluster_rank, k.scalar("mask", 3)):
        text = why(lambda mask=mask: k.tile.copy_cluster(src, tile, cluster_mask=mask, barrier=bar))
        assert "is not known when the kernel is built" in text


@pytest.mark.parametrize("mask", [0, 0b10000, 0b10011])
def test_mask_names_ctas_of_the_cluster(mask: int) -> None:
    k = builder()
    src, tile, bar = source(k)
    text = why(lambda: k.tile.copy_cluster(src, tile, cluster_mask=mask, barrier=bar))
    assert text == f"out-of-bounds: multicast mask {mask:#b} in a cluster of 4 CTAs (B9)"


@pytest.mark.parametrize("rank", [-1, 4])
def test_destination_is_a_cta_of_the_cluster(rank: int) -> None:
    k = builder()
    src, dst, bar = peer(k)
    text = why(lambda: k.tile.copy_cluster(src, dst, dst_cta=rank, barrier=bar))
    assert text == f"out-of-bounds: dst_cta {rank} in a cluster of 4 CTAs (D7)"


def test_source_must_be_in_the_memory_that_the_form_copies() -> None:
    k = builder()
    src, tile, bar = source(k)
    peer_text = why(lambda: k.tile.copy_cluster(src, tile, dst_cta=1, barrier=bar))
    assert "is global" in peer_text
    assert "is shared" in why(lambda: k.tile.copy_cluster(tile, tile, cluster_mask=3, barrier=bar))
    assert "must be in shared memory" in why(
        lambda: k.tile.copy_cluster(tile, src, dst_cta=1, barrier=bar)
    )


def test_target_without_clusters_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "sm_80", Target("sm_80", frozenset(), max_cluster=1))
    k = builder(target="sm_80")
    src, dst, bar = peer(k)
    text = why(lambda: k.tile.copy_cluster(src, dst, dst_cta=1, barrier=bar))
    assert text == "target: sm_80 has no clusters"


def test_shapes_and_named_ctas_are_checked() -> None:
    k = builder()
    src, dst, bar = peer(k)
    assert "shapes differ" in why(lambda: k.tile.copy_cluster(src[:4], dst, dst_cta=1, barrier=bar))
    assert "already names a CTA" in why(
        lambda: k.tile.copy_cluster(src, dst.view().at(1), dst_cta=1, barrier=bar)
    )
    assert "already names a CTA" in why(
        lambda: k.tile.copy_cluster(src, dst, dst_cta=1, barrier=bar[0].at(1))
    )


@pytest.mark.parametrize(
    ("path", "signal", "reason"),
    [
        ("elements", "bytes", "elements: generic stores complete no bytes on the barrier"),
        ("bulk", "arrival", "bulk: the copy completes bytes on the barrier"),
        ("tensor", None, "tensor: a tensor copy needs a tensor map"),
    ],
)
def test_path_that_cannot_keep_the_contract_is_rejected(
    path: Any, signal: Any, reason: str
) -> None:
    k = builder()
    src, dst, bar = peer(k)
    assert reason in why(
        lambda: k.tile.copy_cluster(src, dst, dst_cta=1, barrier=bar, path=path, signal=signal)
    )
    assert not moves(k)


def test_contract_decides_where_the_path_is_open() -> None:
    k = builder()
    src, dst, bar = peer(k)

    def chosen(signal: Any) -> str:
        return k.tile.plan_cluster_copy(src, dst, dst_cta=1, barrier=bar, signal=signal).path

    assert (chosen("bytes"), chosen("arrival"), chosen(None)) == ("bulk", "elements", "bulk")


def test_without_a_possible_path_every_reason_is_given() -> None:
    k = builder()
    src, dst, bar = peer(k)
    text = why(
        lambda: k.tile.copy_cluster(src[:, :3], dst[:, :3], dst_cta=1, barrier=bar, signal="bytes")
    )
    assert all(f"{path}: " in text for path in ("bulk", "rows", "elements"))


@pytest.mark.parametrize("path", ["bulk", "rows"])
def test_bulk_copies_need_a_barrier(path: Any) -> None:
    k = builder()
    src, dst, _ = peer(k)
    text = why(lambda: k.tile.copy_cluster(src, dst, dst_cta=1, path=path))
    assert "completes on an mbarrier" in text


def test_forced_bulk_copy_of_a_strided_region_is_rejected() -> None:
    """B115: the fast path must not flatten."""
    k = builder()
    src, dst, bar = peer(k)
    text = why(
        lambda: k.tile.copy_cluster(src[:, :32], dst[:, :32], dst_cta=1, barrier=bar, path="bulk")
    )
    assert "bulk: src[:, 0:+32] is not one contiguous range" in text


def test_multicast_by_single_stores_is_rejected() -> None:
    """B116: a path that cannot honour the mask must not be taken."""
    k = builder()
    src, tile, bar = source(k)
    text = why(lambda: k.tile.copy_cluster(src, tile, cluster_mask=3, barrier=bar, path="elements"))
    assert "complete no bytes at the passive receivers" in text
    assert "on an mbarrier of every receiver" in why(
        lambda: k.tile.copy_cluster(src, tile, cluster_mask=3)
    )


def test_tensor_map_must_describe_the_source() -> None:
    k = builder()
    src, tile, bar = source(k)
    other = k.tensor_map(k.tensor("Z", f32, (ROWS, COLUMNS)), (ROWS, COLUMNS))
    half = k.tensor_map(whole(src), (ROWS // 2, COLUMNS), name="half")
    for tensor_map, reason in ((other, "describes Z, not the source"), (half, "is not (8, 64)")):
        assert reason in why(
            lambda m=tensor_map: k.tile.copy_cluster(src, tile, cluster_mask=3, barrier=bar, map=m)
        )
    assert "describes global memory" in why(
        lambda: k.tile.copy_cluster(tile, tile, dst_cta=1, barrier=bar, map=half)
    )


def test_unknown_path_is_rejected() -> None:
    k = builder()
    src, dst, bar = peer(k)
    fast: Any = "fast"
    text = why(lambda: k.tile.copy_cluster(src, dst, dst_cta=1, barrier=bar, path=fast))
    assert "there is no path 'fast'; tensor, bulk, rows, elements" in text
