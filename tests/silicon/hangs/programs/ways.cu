// A warp for each way to wait. Two CTAs of a cluster; warps of CTA 1 do the same.
#include "hang.cuh"
KERNEL __cluster_dims__(2) __launch_bounds__(320) ways(int *flag, int id, int count, int *y) {
  __shared__ alignas(8) u64 bar; __shared__ volatile int word;
  const int w = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    init(&bar, 3);
    word = 0;
  }
  __syncthreads();
  if (w == 0) bar_sync(3, 96);  // @named
  if (w == 1) spin(&bar, 0);  // @mbarrier
  if (w == 2) bar_sync(id, count);  // @register
  if (w == 3) {
    if (lane >= 16)
      while (load(flag + 1) == 0) {}  // @lanes
    __syncwarp();  // @meet
  }
  if (w == 4)
    while (load(flag) == 0) {}  // @word
  if (w == 5) cluster_sync();  // @cluster
  if (w == 6)
    while (word == 0) __nanosleep(64);  // @sleep
  if (w == 7) {
    int sum;
    asm volatile("{.reg .pred p; setp.ne.s32 p, %1, 0; barrier.cta.red.popc.u32 %0, 5, 64, p;}" : "=r"(sum) : "r"(lane) : "memory");  // @reduce
    y[lane] = sum;
  }
  if (w == 8) {
    u32 done;
    do
      asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(&bar)) : "memory");  // @test
    while (!done);
  }
  if (w == 9)
    while (atomicAdd(flag + 2, 0) == 0) {}  // @atomic
  y[threadIdx.x] = w;
}
