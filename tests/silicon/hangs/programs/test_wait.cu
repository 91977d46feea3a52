// A poll by test_wait with the token of an arrival; the last arrival of the phase is missing.
#include "hang.cuh"
KERNEL __launch_bounds__(96) test_wait(int *y) {
  __shared__ alignas(8) u64 met;
  if (threadIdx.x == 0) {
    init(&met, 96);
    fence_init();
  }
  __syncthreads();
#ifdef FIXED
  const int come = 96;
#else
  const int come = 95;
#endif
  if (threadIdx.x < come) {
    const u64 token = arrive_n(&met, 1);  // @culprit
    u32 done;
    do
      asm volatile("{.reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(&met)), "l"(token) : "memory");  // @wait
    while (!done);
  }
  y[threadIdx.x] = threadIdx.x;
}
