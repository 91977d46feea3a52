// Half of a warp waits for all of it; the other half polls a word that is never written.
#include "hang.cuh"
KERNEL __launch_bounds__(64) lanes(int *flag, int *y) {
  const int lane = threadIdx.x % 32;
  if (threadIdx.x >= 32) {
    if (lane >= 16)
      while (load(flag) == 0) {}  // @culprit @poll
    __syncwarp();  // @meet
  }
#ifdef FIXED
  else if (lane == 0) store(flag, 1);
#endif
  y[threadIdx.x] = lane;
}
