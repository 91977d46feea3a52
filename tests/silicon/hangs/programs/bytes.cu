// 16 bytes more are expected than the copy brings.
#include "hang.cuh"
KERNEL __launch_bounds__(160) bytes(const float *x, float *y, int tiles) {
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
#ifdef FIXED
        const u32 size = 1024;
#else
        const u32 size = 1040;
#endif
        expect(full + i % 2, size);  // @culprit
        copy(buf[i % 2], x + i * 256, 1024, full + i % 2);
      }
  } else
    for (int i = 0; i < tiles; i++) {
      spin(full + i % 2, i / 2 & 1);  // @read
      y[i * 128 + t] = buf[i % 2][t] + buf[i % 2][t + 128];
      __syncwarp();
      if (lane == 0) arrive(empty + i % 2);
    }
}
