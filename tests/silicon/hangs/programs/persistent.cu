// Four CTAs share ten tiles; those that read them count up to twelve.
#include "hang.cuh"
KERNEL __launch_bounds__(160) persistent(const float *x, float *y, int tiles) {
  RING;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, 4);
    fence_init();
  }
  __syncthreads();
  int i = 0;
  if (w == 4) {
    if (lane == 0)
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, i++) {
        spin(empty + i % 2, i / 2 & 1 ^ 1);
        expect(full + i % 2, 1024);
        copy(buf[i % 2], x + tile * 256, 1024, full + i % 2);
      }
  } else {
#ifdef FIXED
    const int end = tiles;
#else
    const int end = (tiles + 3) / 4 * 4;  // @culprit
#endif
    for (int tile = blockIdx.x; tile < end; tile += gridDim.x, i++) {  // @culprit
      spin(full + i % 2, i / 2 & 1);  // @read
      y[tile * 128 + t] = buf[i % 2][t] + buf[i % 2][t + 128];
      __syncwarp();
      if (lane == 0) arrive(empty + i % 2);
    }
  }
}
