"""The two-consumer Hopper GEMM in JAX's Mosaic GPU interpret mode and here, in one run.

``pip install jax absl-py``, then ``python -m benchmarks.jax_interpret``. Both kernels multiply
128 x 128 x 64 tiles through four stages, one producer and two consumers of 64 rows, per CTA. JAX's
time is that of the second call (compiled before), with race detection; ours is a check of every
schedule (``check``) and a run with numbers (``numbers``), both from a program in memory. Wall
seconds; compare within a run.
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

from tilesim.arith.types import bf16, numpy_dtype
from tilesim.checker import check
from tilesim.kernels.hopper.matmul_v5 import matmul
from tilesim.sim.machine.simulate import simulate

M, N, K, STAGES, ROWS = 128, 128, 64, 4, 64
CASES = ((16, 1), (64, 1), (256, 1), (16, 16), (64, 16))


def pallas(iterations: int, ctas: int) -> Any:
    """The GEMM as a Pallas kernel in interpret mode."""

    def producer(cta: Any, a: Any, b: Any, sa: Any, sb: Any, full: Any, empty: Any) -> None:
        def step(i: Any, _: Any) -> tuple[()]:
            stage = lax.rem(i, STAGES)

            pl.when(i >= STAGES)(lambda: plgpu.barrier_wait(empty.at[stage]))
            depth = pl.ds(i * K, K)
            plgpu.copy_gmem_to_smem(a.at[pl.ds(cta * M, M), depth], sa.at[stage], full.at[stage])
            plgpu.copy_gmem_to_smem(b.at[depth, :], sb.at[stage], full.at[stage])
            return ()

        def drain(i: Any, _: Any) -> tuple[()]:
            plgpu.barrier_wait(empty.at[lax.rem(i, STAGES)])
            return ()

        lax.fori_loop(0, iterations, step, ())
        # interpret mode wants every phase of a barrier observed before its memory goes
        lax.fori_loop(max(iterations - STAGES, 0), iterations, drain, ())

    def consumer(
        cta: Any, group: Any, c: Any, sa: Any, sb: Any, sc: Any, full: Any, empty: Any
    ) -> None:
        rows = pl.ds(group * ROWS, ROWS)

        def scope(acc: Any) -> None:
            def step(i: Any, _: Any) -> tuple[()]:
                stage = lax.rem(i, STAGES)
                plgpu.barrier_wait(full.at[stage])
                plgpu.wgmma(acc, sa.at[stage, rows], sb.at[stage])
                plgpu.wgmma_wait(0)
                plgpu.barrier_arrive(empty.at[stage])
                return ()

            lax.fori_loop(0, iterations, step, ())
            sc[rows] = acc[...].astype(jnp.bfloat16)
            plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(sc.at[rows], c.at[pl.ds(cta * M + group * ROWS, ROWS)])
            plgpu.wait_smem_to_gmem(0)

        pl.run_scoped(scope, plgpu.ACC((ROWS, N), jnp.float32))

    def body(a: Any, b: Any, c: Any, sa: Any, sb: Any, sc: Any, full: Any, empty: Any) -> None:
        cta, group = lax.axis_index("cta"), lax.axis_index("group")

        pl.when(group == 2)(lambda: producer(cta, a, b, sa, sb, full, empty))
        pl.when(group < 2)(lambda: consumer(cta, group, c, sa, sb, sc, full, empty))

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((M * ctas, N), jnp.bfloat16),
        scratch_types=[
            plgpu.SMEM((STAGES, M, K), jnp.bfloat16), plgpu.SMEM((STAGES, K, N), jnp.bfloat16),
            plgpu.SMEM((M, N), jnp.bfloat16), plgpu.Barrier(num_arrivals=2, num_barriers=STAGES),
            plgpu.Barrier(num_arrivals=2, num_barriers=STAGES),
        ],
        num_threads=3, thread_name="group", grid=(ctas,), grid_names=("cta",),
        interpret=InterpretGPUParams(detect_races=True),
    )  # fmt: skip


def seconds(call: Any) -> tuple[float, Any]:
    """Wall seconds of a call, and its result."""
    start = perf_counter()
    result = call()
    return perf_counter() - start, result


def measure(iterations: int, ctas: int) -> str:
    """One row of the table; both sides must compute the product."""
    rng = np.random.default_rng(0)
    dtype = numpy_dtype(bf16)
    a = rng.integers(-2, 3, (M * ctas, K * iterations)).astype(dtype)
    b = rng.integers(-2, 3, (N, K * iterations)).astype(dtype)
    expected = (a.astype(np.float32) @ b.astype(np.float32).T).astype(dtype)

    program = matmul.build(stages=STAGES, iterations=iterations, ctas=ctas)
    ours, report = seconds(lambda: check(program))
    numbers, run = seconds(lambda: simulate(program, {"A": a, "B": b}))
    function = jax.jit(pallas(iterations, ctas))
    operands = jnp.asarray(a), jnp.asarray(b.T)
    jax.block_until_ready(function(*operands))
    theirs, product = seconds(lambda: jax.block_until_ready(function(*operands)))
    equal = np.array_equal(run.outputs["C"], expected) and np.array_equal(product, expected)
    return (
        f"{iterations:>10}  {ctas:>4}  {theirs:>10.2f}  {numbers:>9.2f}  {ours:>7.3f}  "
        f"{theirs / numbers:>11.1f}  {theirs / ours:>9.1f}  {report.verdict}  "
        f"{'equal' if equal else 'DIFFERENT'}"
    )


def main() -> None:
    """Prints the table as it is made."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"jax {jax.__version__}")
    print("iterations  CTAs  JAX seconds  numbers  check  JAX/numbers  JAX/check  verdict  product")
    for iterations, ctas in CASES:
        print(measure(iterations, ctas), flush=True)


if __name__ == "__main__":
    main()
