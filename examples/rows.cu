// Sums the rows of x: bulk copies bring them through two stages of shared memory.
constexpr int STAGES = 2, COLUMNS = 256;

__device__ unsigned at(const void *p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ void load(float *stage, const float *row, unsigned long long *full) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(at(full)), "n"(COLUMNS * 4) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(at(stage)), "l"(row), "n"(COLUMNS * 4), "r"(at(full)) : "memory");
}

__device__ void wait(unsigned long long *full, int parity) {
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }"
                 :: "r"(at(full)), "r"(parity) : "memory");
}

extern "C" __global__ void rows(const float *x, float *y, int n) {
    __shared__ alignas(128) float stage[STAGES][COLUMNS];
    __shared__ unsigned long long full[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&full[s])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int s = 0; s < STAGES; ++s)
            load(stage[s], x + s * COLUMNS, &full[s]);
    }
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < n; ++i) {
        int s = i % STAGES;
        wait(&full[s], i / STAGES & 1);
        sum += stage[s][threadIdx.x];
#ifdef FIXED
        __syncthreads();  // the row has been read, its stage may be filled again
#endif
        if (threadIdx.x == 0 && i + STAGES < n)
            load(stage[s], x + (i + STAGES) * COLUMNS, &full[s]);
    }
    y[threadIdx.x] = sum;
}
