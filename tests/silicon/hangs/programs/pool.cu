// Two groups of four ask for more registers, and the third gives none back. The compiler makes one barrier of the two.
#include "hang.cuh"
KERNEL __launch_bounds__(384, 1) pool(int *y) {
  const int group = threadIdx.x / 128;
  if (group == 0) {
#ifdef FIXED
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
#else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 168;");  // @culprit
#endif
    bar_sync(1, 384);  // @barrier
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");  // @pool
    bar_sync(1, 384);  // @barrier
  }
  y[threadIdx.x] = group;
}
