// CTA 1 waits for word 1, CTA 0 writes word 0.
#include "hang.cuh"
KERNEL __launch_bounds__(64) spin_on_word(int *flags, int *y) {
  if (blockIdx.x == 0) {
    y[threadIdx.x] = 1;
    __syncthreads();
#ifdef FIXED
    if (threadIdx.x == 0) store(flags + 1, 1);
#else
    if (threadIdx.x == 0) store(flags + 0, 1);  // @culprit
#endif
  } else {
    if (threadIdx.x == 0)
      while (load(flags + 1) == 0) {}  // @poll
    __syncthreads();  // @barrier
    y[64 + threadIdx.x] = y[threadIdx.x];
  }
}
