// Warp 3 comes to barrier 2, the others wait for it at barrier 1.
#include "hang.cuh"
KERNEL __launch_bounds__(128) named(int *y) {
  const int w = threadIdx.x / 32;
  if (w < 3) {
    bar_sync(1, 128);  // @one
  } else {
#ifdef FIXED
    bar_sync(1, 128);
#else
    bar_sync(2, 64);  // @culprit @two
#endif
  }
  y[threadIdx.x] = w;
}
