// Barrier 5 also reduces; the last warp is not there.
#include "hang.cuh"
KERNEL __launch_bounds__(96) reduce(int *y) {
  const int w = threadIdx.x / 32;
  int sum = 0;
#ifdef FIXED
  const int warps = 3;
#else
  const int warps = 2;
#endif
  if (w < warps)
    asm volatile("{.reg .pred p; setp.ne.s32 p, %1, 0; barrier.cta.red.popc.u32 %0, 5, 96, p;}" : "=r"(sum) : "r"(w) : "memory");  // @culprit
  y[threadIdx.x] = sum;
}
