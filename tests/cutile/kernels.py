"""Kernels for tests/cutile, which need cuTile."""

import cuda.tile as ct


@ct.kernel
def product(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    """c = a b, a tile per block."""
    row, column = ct.bid(0), ct.bid(1)
    acc = ct.full((M, N), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, k), shape=(M, K))
        right = ct.load(b, index=(k, column), shape=(K, N))
        acc = ct.mma(left, right, acc)
    ct.store(c, index=(row, column), tile=ct.astype(acc, ct.float16))


@ct.kernel
def summed(a, b, N: ct.Constant[int]):
    """b = the sums of the rows of a, with a wrong store: all blocks write the same tile."""
    tile = ct.load(a, index=(ct.bid(0), 0), shape=(N, N))
    ct.store(b, index=(0,), tile=ct.sum(tile, axis=1))
