"""What every litmus program starts with: threads, zeroed memory, initialised and visible barriers.

The instructions under test are written out in the programs, so that findings carry their lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilesim import Builder, s32
from tilesim.ir.declarations import GlobalTensor, Mbarriers, SharedTensor


@contextmanager
def thread(k: Builder, warp: int, name: str = "") -> Iterator[None]:
    """``Tn``: one elected thread of a warp of its own."""
    with k.role(name or f"T{warp}", warp), k.elected():
        yield


@contextmanager
def warpgroup(k: Builder, group: int = 0) -> Iterator[None]:
    """``WGn``: the four warps of a warpgroup."""
    with k.role(f"WG{group}", range(4 * group, 4 * group + 4)):
        yield


def words(k: Builder, name: str, count: int = 1) -> SharedTensor:
    """``count`` integers in shared memory."""
    return k.shared(name, s32, (count,))


def global_words(k: Builder, name: str, count: int = 1) -> GlobalTensor:
    """``count`` integers in global memory."""
    return k.tensor(name, s32, (count,))


def begin(
    k: Builder,
    *barriers: tuple[Mbarriers, int],
    zero: Sequence[SharedTensor | GlobalTensor] = (),
) -> None:
    """Zeroes memory (for both proxies), initialises the barriers, and makes both visible.

    Not a role: roles in findings are those of the litmus program.
    """
    for tensor in zero:
        with k.if_(k.thread_id < tensor.shape[0]):
            k.mem.store(tensor[k.thread_id], 0)
    if zero:
        k.fence.proxy_async()
    with k.if_(k.thread_id.eq(0)):
        for barrier, count in barriers:
            k.mbarrier.init(barrier, count)
    k.sync_threads()


def ones(k: Builder, *tiles: SharedTensor) -> None:
    """Warp 0 fills tiles with ones; all threads and the tensor cores see them behind that."""
    with k.if_(k.warp_id.eq(0)):
        for tile in tiles:
            filled = k.fragment(f"ones_{tile.name}", tile.dtype, tile.shape)
            k.tile.fill(filled, 1)
            k.tile.store(tile, filled)
        k.fence.proxy_async()
    k.sync_threads()
