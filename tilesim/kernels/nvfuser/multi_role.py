"""Multi-role warp specialisation, corrected: one full/empty pair of barriers per async warp.

The computation is that of `printed`. What changed:

* Each asynchronous warp has its own `Pipeline`; the compute warps wait for both and release both.
* The outer test selects the warpgroup, the inner one the warp: every warp of the padded warpgroup
  executes ``setmaxnreg.dec``, two of them copy, the others are done.
* A lane is elected once per role, around the loop, not by predicates inside it.
* The stages start out empty (the producers' first wait names the phase before the first), so no
  prologue of arrivals exists that could be emitted twice.
* The barriers are invalidated after a named barrier of all compute warps.
"""

from __future__ import annotations

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import GlobalTensor, SharedTensor, ds
from tilesim.kernels.hopper.operands import tiles
from tilesim.kernels.nvfuser.printed import multiply_reference
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

COMPUTE = range(8)
ASYNC = range(8, 12)
COMPUTE_THREADS = 32 * len(COMPUTE)


@kernel(warps=12, family="nvfuser", reference=multiply_reference)
def multi_role(
    k: Builder, *, rows: int = 8, columns: int = 512, stages: int = 2, ctas: int = 1
) -> None:
    """T4 (rows, columns) = T0 * T1 with two asynchronous warps."""
    row_count = tiles(rows, ctas, "rows")
    part = tiles(columns, len(COMPUTE), "columns")
    k.launch(grid=ctas, registers=168)
    T0 = k.tensor("T0", f32, (rows, columns))
    T1 = k.tensor("T1", f32, (rows, columns))
    T4 = k.tensor("T4", f32, (rows, columns))
    T2 = k.shared("T2", f32, (stages, columns))
    T3 = k.shared("T3", f32, (stages, columns))
    left = Pipeline(k, stages, name="left", consumers=COMPUTE_THREADS)
    right = Pipeline(k, stages, name="right", consumers=COMPUTE_THREADS)
    a = k.fragment("a", f32, (1, part))
    b = k.fragment("b", f32, (1, part))

    with k.one_thread():
        left.init()
        right.init()
    k.sync_threads()

    with k.role("async", ASYNC):
        k.setmaxnreg("dec", 152)
        with k.role("load T0", ASYNC[0]), k.elected():
            _load(k, left, T0, T2, row_count)
        with k.role("load T1", ASYNC[1]), k.elected():
            _load(k, right, T1, T3, row_count)

    with k.role("compute", COMPUTE):
        k.setmaxnreg("inc", 176)
        mine = ds(k.warp_id * part, part)
        with k.loop(row_count) as i:
            x, y = left[i], right[i]
            x.wait()
            y.wait()
            k.tile.load(a, T2[x.stage, mine])
            k.tile.load(b, T3[y.stage, mine])
            k.fence.proxy_async("shared::cta")  # the reads, before the next copy's writes
            x.release()
            y.release()
            k.tile.zip(a, "mul", a, b)
            k.tile.store(T4[k.cta_x * row_count + i, mine], a)
        k.bar.sync(1, COMPUTE_THREADS, aligned=False)
        with k.one_thread():
            left.invalidate()
            right.invalidate()


def _load(
    k: Builder, pipe: Pipeline, source: GlobalTensor, target: SharedTensor, row_count: int
) -> None:
    """The role of an asynchronous warp: one bulk copy per row."""
    with k.loop(row_count) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(target[slot.stage].nbytes)
        k.bulk.load(target[slot.stage], source[k.cta_x * row_count + i], slot.full)


CASES = (
    Case(multi_role, {}, "nvfuser", "proved"),
    Case(multi_role, {"stages": 3, "rows": 10, "ctas": 2}, "nvfuser", "proved"),
    Case(multi_role, {"stages": 1, "rows": 3}, "nvfuser", "proved"),
)
