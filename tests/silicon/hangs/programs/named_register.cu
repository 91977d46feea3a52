// The number of the barrier and its count are parameters; a warp less comes than are counted.
#include "hang.cuh"
KERNEL __launch_bounds__(128) named_register(int *y, int id, int count) {
  const int w = threadIdx.x / 32;
  if (w < 3) bar_sync(id, count);  // @culprit
  y[threadIdx.x] = w;
}
