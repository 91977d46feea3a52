// Arrivals of cp.async that do not count themselves, at a barrier of as many threads: .noinc is missing.
#include "hang.cuh"
KERNEL __launch_bounds__(128) ampere_copies(const float *x, float *y) {
  __shared__ alignas(16) float buf[512]; __shared__ alignas(8) u64 full;
  const int t = threadIdx.x;
  if (t == 0) {
    init(&full, 128);
    fence_init();
  }
  __syncthreads();
  cp_async(buf + 4 * t, x + 4 * t);
#ifdef FIXED
  cp_async_arrive(&full);
#else
  asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(at(&full)) : "memory");  // @culprit
#endif
  spin(&full, 0);  // @read
  y[t] = buf[511 - 4 * t];
}
