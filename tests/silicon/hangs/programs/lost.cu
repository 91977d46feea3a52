// Warp 2 does not free the stage of tile 3.
#include "hang.cuh"
KERNEL __launch_bounds__(160) lost(const float *x, float *y, int tiles) {
  RING;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, 4);
    fence_init();
  }
  __syncthreads();
  if (w == 4) {
    if (lane == 0)
      for (int i = 0; i < tiles; i++) {
        spin(empty + i % 2, i / 2 & 1 ^ 1);  // @fill
        expect(full + i % 2, 1024);
        copy(buf[i % 2], x + i * 256, 1024, full + i % 2);
      }
  } else
    for (int i = 0; i < tiles; i++) {
      spin(full + i % 2, i / 2 & 1);  // @read
      y[i * 128 + t] = buf[i % 2][t] + buf[i % 2][t + 128];
      __syncwarp();
#ifdef FIXED
      const bool frees = true;
#else
      const bool frees = i != 3 || w != 2;
#endif
      if (lane == 0 && frees) arrive(empty + i % 2);  // @culprit
    }
}
