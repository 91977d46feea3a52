// The number of the barrier and its count are parameters; warp 3 is counted, and waits for what comes behind it.
#include "hang.cuh"
KERNEL __launch_bounds__(128) named_register(int *y, int id, int count) {
  __shared__ alignas(8) u64 done;
  const int w = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    init(&done, 3);
    fence_init();
  }
  __syncthreads();
  if (w < 3) {
    bar_sync(id, count);  // @culprit @named
    if (lane == 0) arrive(&done);
  } else
    spin(&done, 0);  // @wait
  y[threadIdx.x] = w;
}
