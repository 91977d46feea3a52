// The kernel that sets the flag finds no room on the GPU: the one that waits for it holds every SM.
#include "hang.cuh"
KERNEL __launch_bounds__(32) waiting(int *flag, int *y) {
  extern __shared__ int room[];
  room[threadIdx.x] = threadIdx.x;
  while (load(flag) == 0) {}  // @culprit @poll
  y[threadIdx.x] = room[31 - threadIdx.x];
}
KERNEL __launch_bounds__(32) setting(int *flag) {
  extern __shared__ int room[];
  room[threadIdx.x] = 1;
  __syncwarp();
  if (threadIdx.x == 0) store(flag, room[0]);
}
