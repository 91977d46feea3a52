// A word in shared memory is polled with a sleep in between; warp 1 writes another one.
#include "hang.cuh"
KERNEL __launch_bounds__(64) backoff(int *y) {
  __shared__ volatile int words[2];
  if (threadIdx.x == 0) words[0] = words[1] = 0;
  __syncthreads();
#ifdef FIXED
  const int written = 0;
#else
  const int written = 1;
#endif
  if (threadIdx.x == 32) {
    __threadfence_block();
    words[written] = 1;  // @culprit
  }
  if (threadIdx.x < 32) {
    while (words[0] == 0) __nanosleep(200);  // @poll
    __threadfence_block();
  }
  y[threadIdx.x] = threadIdx.x;
}
