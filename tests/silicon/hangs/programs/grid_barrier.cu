// A barrier of all CTAs of a grid of which not all fit on the GPU at once.
#include "hang.cuh"
KERNEL __launch_bounds__(32) grid_barrier(int *count, int *y) {
  extern __shared__ int room[];
  if (threadIdx.x == 0) {
    room[0] = add(count, 1);
    while (load(count) < (int)gridDim.x) {}  // @culprit @poll
  }
  __syncwarp();
  y[blockIdx.x * 32 + threadIdx.x] = room[0];
}
