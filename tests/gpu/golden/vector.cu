// vector, sm_90a, from 
typedef unsigned char u8;       typedef signed char s8;
typedef unsigned short u16;     typedef short s16;
typedef unsigned int u32;       typedef int s32;
typedef unsigned long long u64; typedef long long s64;
typedef float f32;              typedef double f64;
#define DEVICE __device__ __forceinline__
// the elected lane acts for all: what the others did is ordered before what it does
DEVICE u32 elect_sync(u32 mask) {
  __syncwarp(mask);
  u32 elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, %1;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected) : "r"(mask) : "memory");
  return elected;
}
DEVICE u32 mbarrier_try_wait_parity_acquire_cta(u32 mbar, u32 phase) {
  u32 done;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
               "selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"(mbar), "r"(phase) : "memory");
  return done;
}

extern "C" __global__ void __launch_bounds__(32, 1)
vector(
    f32* X,
    f32* Y) {
  extern __shared__ __align__(1024) char shared[];
  const u32 smem = (u32)__cvta_generic_to_shared(shared);
  const s32 warp_id = __shfl_sync(0xffffffff, threadIdx.x >> 5, 0);
  const s32 cta_x = blockIdx.x;
  const u32 loaded = smem + 2048;
  s32 elected = 0;
  if (warp_id == 0) {  // warp 0
    elected = elect_sync(0xffffffff);  // elect.sync
    if (elected) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(loaded), "r"(1) : "memory");  // mbarrier.init
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(loaded + 8), "r"(1) : "memory");  // mbarrier.init
      #pragma unroll 1
      for (s32 i = 0; i < 8; ++i) {
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");  // cp.async.bulk.wait_group
        asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" :: "r"(loaded + 8 * (i & 1)), "r"(1024) : "memory");  // mbarrier.arrive.expect_tx
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];" :: "r"(smem + ((i & 1) * 1024)), "l"((X + (((cta_x * 8) + i) * 256))), "r"(loaded + 8 * (i & 1)) : "memory");  // cp.async.bulk.load
        while (!mbarrier_try_wait_parity_acquire_cta(loaded + 8 * (i & 1), (u32)((i >> 1) & 1))) {}  // mbarrier.wait
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" :: "l"((Y + (((cta_x * 8) + i) * 256))), "r"(smem + ((i & 1) * 1024)) : "memory");  // cp.async.bulk.store
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");  // cp.async.bulk.commit_group
      }
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // cp.async.bulk.wait_group
    }
    __syncwarp();
  }
}
