// The phase of the copy is over, as warp 0 has seen; the others wait for the phase after it.
#include "hang.cuh"
KERNEL __launch_bounds__(128) stale(const float *x, float *y) {
  __shared__ alignas(128) float buf[256]; __shared__ alignas(8) u64 full;
  const int t = threadIdx.x;
  if (t == 0) {
    init(&full, 1);
    fence_init();
    expect(&full, 1024);
    copy(buf, x, 1024, &full);
    spin(&full, 0);
  }
  __syncthreads();
#ifdef FIXED
  const u32 phase = 0;
#else
  const u32 phase = 1;
#endif
  spin(&full, phase);  // @culprit @read
  y[t] = buf[t] + buf[t + 128];
}
