// A cluster of two: each CTA loads half of a tile by TMA and multicasts it to both.
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_runtime.h>

constexpr int ROWS = 64, COLUMNS = 64, TILES = 4;

struct Arguments {
    int tiles;
    float *out;
    CUtensorMap map;
};

__device__ unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void wait(unsigned bar, unsigned parity) {
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra L; }"
                 :: "r"(bar), "r"(parity) : "memory");
}

template <bool Right>
__global__ __cluster_dims__(2) void sum(const __grid_constant__ Arguments arguments) {
    extern __shared__ __align__(128) float tile[];
    __shared__ unsigned long long full, empty;
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at(&full)) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 256;" :: "r"(at(&empty)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    float total = 0;
    for (int i = 0; i < arguments.tiles; ++i) {
        if (threadIdx.x == 0) {
            if (Right && i > 0) wait(at(&empty), (i - 1) & 1);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                         :: "r"(at(&full)), "r"(ROWS * COLUMNS * 4) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                         ".multicast::cluster [%0], [%1, {%2, %3}], [%4], 3;"
                         :: "r"(at(tile) + rank * ROWS * COLUMNS * 2), "l"(&arguments.map), "r"(0),
                            "r"(i * ROWS + (int)rank * ROWS / 2), "r"(at(&full)) : "memory");
        }
        wait(at(&full), i & 1);
        for (int j = threadIdx.x; j < ROWS * COLUMNS; j += blockDim.x) total += tile[j];
        for (int peer = 0; peer < 2; ++peer)
            asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;\n"
                         "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]; }"
                         :: "r"(at(&empty)), "r"(peer) : "memory");
    }
    arguments.out[blockIdx.x * blockDim.x + threadIdx.x] = total;
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#define MUST(call) \
    do { int e = (int)(call); if (e) { printf("%s: error %d\n", #call, e); exit(2); } } while (0)

template <bool Right> void run(Arguments arguments) {
    int bytes = ROWS * COLUMNS * 4 + 65536;
    MUST(cudaFuncSetAttribute(sum<Right>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    cudaLaunchConfig_t config = {};
    config.gridDim = 2, config.blockDim = 128, config.dynamicSmemBytes = bytes;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = 2, attribute.val.clusterDim.y = 1, attribute.val.clusterDim.z = 1;
    config.attrs = &attribute, config.numAttrs = 1;
    MUST(cudaLaunchKernelEx(&config, sum<Right>, arguments));
}

int main() {
    float *in, *out;
    MUST(cudaMalloc(&in, ROWS * TILES * COLUMNS * 4));
    MUST(cudaMalloc(&out, 256 * 4));
    void *encode = nullptr;
    cudaDriverEntryPointQueryResult found;
    MUST(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
    Arguments arguments = {TILES, out, {}};
    cuuint64_t dims[] = {COLUMNS, ROWS * TILES}, strides[] = {COLUMNS * 4};
    cuuint32_t box[] = {COLUMNS, ROWS / 2}, steps[] = {1, 1};
    MUST(((decltype(&cuTensorMapEncodeTiled))encode)(
        &arguments.map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, in, dims, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    run<true>(arguments);
    run<false>(arguments);
    MUST(cudaDeviceSynchronize());
}
