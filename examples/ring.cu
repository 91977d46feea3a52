// Scales tiles of a vector: a thread fills a ring of stages by bulk copies, four warps empty it.
// It hangs, but not always.
#ifndef __CUDACC_RTC__
#include <cstdio>
#include <cstdlib>
#endif

using u32 = unsigned;
using u64 = unsigned long long;
constexpr int STAGES = 4, TILE = 512, BYTES = TILE * sizeof(float);

struct alignas(128) Storage {
    float data[STAGES][TILE];
    u64 full[STAGES], empty[STAGES];
};

__device__ u32 at(const void *shared) { return __cvta_generic_to_shared(shared); }

__device__ void init(u64 *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at(barrier)), "r"(count) : "memory");
}

__device__ void arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at(barrier)) : "memory");
}

__device__ void wait(u64 *barrier, u32 parity) {
    asm volatile("{\n.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" :: "r"(at(barrier)), "r"(parity) : "memory");
}

__device__ void load(void *to, const void *from, u64 *barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(at(barrier)), "n"(BYTES) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(at(to)), "l"(from), "n"(BYTES), "r"(at(barrier)) : "memory");
}

__global__ void __launch_bounds__(160) scale(const float *in, float *out, int tiles, float factor) {
    extern __shared__ __align__(128) unsigned char memory[];
    Storage &s = *reinterpret_cast<Storage *>(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init(&s.full[i], 1);
            init(&s.empty[i], 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (warp == 4) {
        for (int i = 0; lane == 0 && i < tiles; ++i) {
            wait(&s.empty[i % STAGES], i / STAGES & 1 ^ 1);
            load(s.data[i % STAGES], in + i * TILE, &s.full[i % STAGES]);
        }
    } else {
        for (int i = 0; i < tiles; ++i) {
            wait(&s.full[i % STAGES], i / STAGES & 1);
            for (int j = threadIdx.x; j < TILE; j += 128)
                out[i * TILE + j] = s.data[i % STAGES][j] * factor;
            __syncwarp();
            if (lane == 0)
                arrive(&s.empty[i % STAGES]);
        }
    }
}

#ifndef __CUDACC_RTC__
int main(int argc, char **argv) {
    const int tiles = argc > 1 ? atoi(argv[1]) : 10;
    float *in, *out;
    cudaMalloc(&in, tiles * BYTES);
    cudaMalloc(&out, tiles * BYTES);
    scale<<<1, 160, sizeof(Storage)>>>(in, out, tiles, 2.0f);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
#endif
