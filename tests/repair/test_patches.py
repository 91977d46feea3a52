"""Patches of Python: what they change is what was proved, or there are none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Literal

import pytest

import tilesim as ts
from tilesim.dsl.kernel import Kernel
from tilesim.kernels.bugs.arrival_count import contiguous_load
from tilesim.kernels.bugs.cluster_arrivals import local_arrive
from tilesim.kernels.bugs.cluster_lifetime import last_arrive
from tilesim.kernels.bugs.copy_destination import refilled_by_first_warp, zeroed_first
from tilesim.repair import Repair
from tilesim.transforms.rewrite import Patch

#: wrong kernels whose repairs are lines beside a region, at another CTA's barrier, or of a barrier
#: that the function has no name for
KERNELS = (
    contiguous_load, local_arrive, last_arrive, refilled_by_first_warp, zeroed_first,
)  # fmt: skip


def _found(kernel: Kernel, **params: Any) -> tuple[Repair, ...]:
    repairs = ts.check(kernel.build(**params), suggest=timedelta(minutes=10)).repairs
    assert repairs is not None
    return repairs.found


def _patched(kernel: Kernel, patches: Iterable[Patch], folder: Path) -> Kernel:
    """The kernel of a file with these lines."""
    (file,) = {patch.file for patch in patches}
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    for patch in sorted(patches, key=lambda patch: -patch.first):
        lines[patch.first - 1 : patch.last] = patch.new
    changed = folder / "changed.py"
    changed.write_text("\n".join(lines), encoding="utf-8")
    spec = spec_from_file_location("changed", changed)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    again = getattr(module, kernel.name)
    assert isinstance(again, Kernel)
    return again


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_patch_makes_the_program_that_was_proved(kernel: Kernel, tmp_path: Path) -> None:
    for repair in _found(kernel):
        if repair.patches:
            again = _patched(kernel, repair.patches, tmp_path)
            assert ts.check(again.build()).verdict == repair.verdict, repair.what


def test_a_barrier_goes_by_a_name_of_its_function() -> None:
    """``full`` is a name in the file, and not in this function: ``slot.full`` is."""
    arrivals = [r for r in _found(contiguous_load) if r.what.startswith("mbarrier.arrive on full")]
    added = [patch.new[-1].strip() for repair in arrivals for patch in repair.patches]
    assert added == ["k.mbarrier.arrive(slot.full)"]
    assert any(not repair.patches for repair in arrivals)


def test_an_arrival_that_is_put_in_names_its_cta() -> None:
    second = next(r for r in _found(local_arrive) if r.what.startswith("mbarrier.arrive on sent"))
    (patch,) = second.patches
    assert patch.new[1].strip() == 'k.mbarrier.arrive(sent[0].at(0), scope="cluster")'


def test_a_line_stands_beside_a_region() -> None:
    (patch,) = _found(refilled_by_first_warp)[0].patches
    assert [line.strip() for line in patch.new] == ["k.bar.sync(1, 128)", "with k.one_thread():"]


def test_half_a_repair_is_no_patch() -> None:
    """A fence in front of the election, which no line can be, and a barrier before the region."""
    first = _found(zeroed_first)[0]
    assert first.what.count(";") == 1
    assert first.patches == ()


@ts.kernel(warps=5)
def two_counters(k: ts.Builder, *, fault: str = "") -> None:
    """A ring over the turns of two loops, made at one line; who reads may not wait."""
    X, Y = k.tensor("X", ts.f32, (6, 128)), k.tensor("Y", ts.f32, (6, 128))
    tile, x = k.shared("tile", ts.f32, (2, 128)), k.var("x", dtype=ts.f32)
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    with k.one_thread():
        for slot in range(2):
            k.mbarrier.init(full[slot], 1)
            k.mbarrier.init(empty[slot], 128)
    k.sync_threads()
    with k.role("load", 4), k.elected(), k.loop(2) as t, k.loop(3) as i:
        n = t * 3 + i
        k.mbarrier.wait(empty[n % 2], ((n // 2) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[n % 2], 512)
        k.bulk.load(tile[n % 2], X[n], full[n % 2])
    with k.role("read", range(4)), k.loop(2) as t, k.loop(3) as i:
        n = t * 3 + i
        if fault != "unasked":
            k.mbarrier.wait(full[n % 2], (n // 2) & 1)
        k.mem.load(x, tile[n % 2, k.thread_id])
        k.mbarrier.arrive(empty[n % 2])
        k.mem.store(Y[n, k.thread_id], x)


def test_counters_go_by_the_names_that_their_loops_bind(tmp_path: Path) -> None:
    """Both are called ``i`` unless somebody says another name for reports."""
    first = _found(two_counters, fault="unasked")[0]
    (patch,) = first.patches
    added = "k.mbarrier.wait(full[((t * 3) + i) % 2], (((t * 3) + i) // 2) & 1)"
    assert added in [line.strip() for line in patch.new]
    again = _patched(two_counters, first.patches, tmp_path)
    assert ts.check(again.build(fault="unasked")).verdict == "proved"


@ts.kernel(warps=1)
def flags(k: ts.Builder, *, sem: Literal["relaxed", "acquire"] = "relaxed") -> None:
    """A number is read once its flag is set."""
    k.launch(grid=2, cooperative=True)
    word, flag = k.tensor("word", ts.s32, (1,)), k.tensor("flag", ts.s32, (1,))
    seen = k.var("seen", 0)
    with k.one_thread(), k.if_(k.cta_x.eq(0)):
        k.mem.store(word[0], 1)
        k.mem.store(flag[0], 1, sem="release", scope="gpu")
    with k.one_thread(), k.if_(k.cta_x.eq(1)):
        with k.while_(seen.eq(0)):
            k.mem.load(seen, flag[0], sem=sem, scope="gpu")
        k.mem.load(seen, word[0])


def test_a_load_acquires_and_a_fence_names_its_scope(tmp_path: Path) -> None:
    found = _found(flags)
    assert found[0].what == "sem acquire instead of relaxed in ld"
    fence = next(repair for repair in found if repair.what.startswith("fence before"))
    (patch,) = fence.patches
    assert patch.new[0].strip() == 'k.fence.memory(scope="gpu")'
    for repair in found:
        again = _patched(flags, repair.patches, tmp_path)
        assert ts.check(again.build()).verdict == "proved"
