// Of twelve CTAs, CTA 7 has one row less than its barrier counts.
#include "hang.cuh"
KERNEL __launch_bounds__(64) one_of_many(const int *rows, int *y) {
  __shared__ alignas(8) u64 done;
  const int t = threadIdx.x;
  if (t == 0) {
    init(&done, 8);
    fence_init();
  }
  __syncthreads();
  if (t < rows[blockIdx.x]) arrive(&done);  // @culprit
  spin(&done, 0);  // @wait
  y[blockIdx.x * 64 + t] = t;
}
