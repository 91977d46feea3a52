"""Words that threads hand over, and what orders them."""

from __future__ import annotations

from tilesim import Builder, kernel, s32


@kernel(warps=2)
def the_word_of_another_warp(k: Builder) -> None:
    x, r = k.shared("x", s32, (64,)), k.var("r", 0)
    k.mem.store(x[k.thread_id], 1)  # error: race
    k.sync_threads()  # ok
    with k.role("reader", 0):
        k.mem.load(r, x[32])  # error: race by reader
