"""What becomes of bulk stores whose CTA ends at once (SEMANTICS B34, U15): a trial on a GPU.

``python -m benchmarks.early_exit`` needs CuPy and a Hopper GPU. Each CTA fills its shared memory
with its number, starts bulk stores of it to a place of its own in global memory, and ends; the CTA
that follows on the multiprocessor fills the same shared memory with another number. Had it been
given the memory before the stores had read it, that number would be seen.
"""

from __future__ import annotations

from itertools import product

_SOURCE = r"""
extern "C" __global__ void early_exit(unsigned* out, int nbytes, int pieces, int waits) {
    extern __shared__ __align__(128) unsigned tile[];
    for (int i = threadIdx.x; i < nbytes / 4; i += blockDim.x) tile[i] = blockIdx.x + 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x) return;
    unsigned from = static_cast<unsigned>(__cvta_generic_to_shared(tile));
    char* to = reinterpret_cast<char*>(out) + static_cast<size_t>(blockIdx.x) * nbytes;
    int each = nbytes / pieces;
    for (int p = 0; p < pieces; p++)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                     :: "l"(to + p * each), "r"(from + p * each), "r"(each) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (waits) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
"""
_SIZES = (220 * 1024, 64 * 1024, 16 * 1024, 2 * 1024)
#: for each multiprocessor, and how often they are launched
_CTAS, _LAUNCHES = 40, 20


def main() -> None:
    """A row for each size, number of stores, and whether the CTA waits for them."""
    import cupy

    device = cupy.cuda.runtime.getDeviceProperties(0)
    ctas = _CTAS * device["multiProcessorCount"]
    print(f"{device['name'].decode()}, {ctas} CTAs, {_LAUNCHES} launches")
    kernel = cupy.RawKernel(_SOURCE, "early_exit", options=("--gpu-architecture=sm_90a",))
    kernel.max_dynamic_shared_size_bytes = max(_SIZES)
    print("| bytes | stores | waits | CTAs with a wrong word |\n| ---: | ---: | --- | ---: |")
    for nbytes, pieces, waits in product(_SIZES, (1, 16), (False, True)):
        wrong = 0
        for _ in range(_LAUNCHES):
            out = cupy.zeros((ctas, nbytes // 4), cupy.uint32)
            kernel((ctas,), (256,), (out, nbytes, pieces, int(waits)), shared_mem=nbytes)
            numbers = cupy.arange(1, ctas + 1, dtype=cupy.uint32)
            wrong += int((out != numbers[:, None]).any(axis=1).sum())
        print(f"| {nbytes} | {pieces} | {'yes' if waits else 'no'} | {wrong} |", flush=True)


if __name__ == "__main__":
    main()
