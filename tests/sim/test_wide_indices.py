"""Elements that registers of 64 bits name."""

from __future__ import annotations

import pytest

from tilesim import Builder, Program, check, u32, u64


def stores(first: int, *, lanes: bool, shared: bool) -> Program:
    """Each lane stores to an element from ``first`` on, or all to this one."""
    k = Builder("stores", warps=1)
    x = k.shared("x", u32, (32,)) if shared else k.tensor("x", u32, (32,))
    index = k.var("index", first, dtype=u64)
    if lanes:
        k.mem.store(x[index + k.lane_id], 1)
    else:
        with k.elected():
            k.mem.store(x[index], 1)
    return k.finish()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("first", [1 << 63, (1 << 64) - 32, (1 << 64) - 1])
def test_an_index_beyond_a_tensor_is_found_however_large(
    first: int, *, lanes: bool, shared: bool
) -> None:
    assert check(stores(first, lanes=lanes, shared=shared)).rules == {"out-of-bounds"}
    assert check(stores(0, lanes=lanes, shared=shared)).verdict == "proved"
