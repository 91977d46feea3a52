// Barrier 5 also reduces; warp 2 is counted, and waits for what comes behind it.
#include "hang.cuh"
KERNEL __launch_bounds__(96) reduce(int *y) {
  __shared__ alignas(8) u64 done;
  const int w = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    init(&done, 2);
    fence_init();
  }
  __syncthreads();
#ifdef FIXED
  const int count = 64;
#else
  const int count = 96;
#endif
  int sum = 0;
  if (w < 2) {
    asm volatile("{.reg .pred p; setp.ne.s32 p, %1, 0; barrier.cta.red.popc.u32 %0, 5, %2, p;}" : "=r"(sum) : "r"(w), "r"(count) : "memory");  // @culprit @reduce
    if (lane == 0) arrive(&done);
  } else
    spin(&done, 0);  // @wait
  y[threadIdx.x] = sum;
}
