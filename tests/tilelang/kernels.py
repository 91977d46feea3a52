"""Kernels for tests/tilelang, which need tilelang."""

import tilelang
from tilelang import language as T

#: without the warps that only load
PLAIN = {tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True}


def product(m, n, k, block=128, depth=64):
    """C = A B through a pipeline of three stages."""

    @T.prim_func
    def product(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, block), T.ceildiv(m, block), threads=128) as (x, y):
            a = T.alloc_shared((block, depth), "float16")
            b = T.alloc_shared((depth, block), "float16")
            sums = T.alloc_fragment((block, block), "float32")
            T.clear(sums)
            for i in T.Pipelined(T.ceildiv(k, depth), num_stages=3):
                T.copy(A[y * block, i * depth], a)
                T.copy(B[i * depth, x * block], b)
                T.gemm(a, b, sums)
            T.copy(sums, C[y * block, x * block])

    return product


def doubled(rows, parity=0, count=128):
    """B = 2 A: one warpgroup loads tiles of 64 rows, the other one adds them to themselves.

    ``parity`` is that of the first phase that is waited for, ``count`` how many arrivals free the
    buffer.
    """
    N = T.dynamic("N")

    @T.prim_func
    def doubled(A: T.Tensor((rows, N), "float16"), B: T.Tensor((rows, N), "float16")):
        with T.Kernel(T.ceildiv(N, 64), threads=256) as x:
            tile = T.alloc_shared((64, 64), "float16")
            full = T.alloc_barrier(arrive_count=128)
            free = T.alloc_barrier(arrive_count=count)
            for i in T.Pipelined(rows // 64, num_stages=0):
                with T.ws(0):
                    T.barrier_wait(free, (i + 1) % 2)
                    T.tma_copy(A[i * 64, x * 64], tile, barrier=full)
                    T.barrier_arrive(full)
                with T.ws(1):
                    T.barrier_wait(full, (i + parity) % 2)
                    for r, c in T.Parallel(64, 64):
                        B[i * 64 + r, x * 64 + c] = tile[r, c] + tile[r, c]
                    T.barrier_arrive(free)

    return doubled
