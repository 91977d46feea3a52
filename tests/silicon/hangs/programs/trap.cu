// A watchdog: a wait that takes too long ends in a trap.
#include "hang.cuh"
KERNEL __launch_bounds__(64) trap(int *y) {
  __shared__ alignas(8) u64 ready;
  if (threadIdx.x == 0) {
    init(&ready, 3);
    fence_init();
    arrive(&ready);
  }
  __syncthreads();
  if (threadIdx.x >= 32) {
    spin(&ready, 0);  // @wait
  } else if (threadIdx.x == 0) {
    for (int i = 0; i < 20000; i++) __nanosleep(1000);
    asm volatile("trap;");  // @trap
  }
  y[threadIdx.x] = threadIdx.x;
}
