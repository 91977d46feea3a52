// A wait whose loop is in C++, with a limit of time for each try and a sleep between tries; the arrival is missing.
#include "hang.cuh"
KERNEL __launch_bounds__(64) try_with_sleep(int *y) {
  __shared__ alignas(8) u64 ready;
  if (threadIdx.x == 0) {
    init(&ready, 2);
    fence_init();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    u32 done = 0;
    while (!done) {
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0, 1000; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(&ready)) : "memory");  // @wait
      if (!done) __nanosleep(64);
    }
  } else {
#ifdef FIXED
    const int arrivals = 2;
#else
    const int arrivals = 1;
#endif
    if (threadIdx.x % 32 < arrivals) arrive(&ready);  // @culprit
  }
  y[threadIdx.x] = threadIdx.x;
}
