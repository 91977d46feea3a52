// Warp 4 fills two stages that warps 0 to 3 read. PARITY, COUNT, BYTES and LOST are a mistake each.
#include "hang.cuh"
KERNEL __launch_bounds__(160) ring(const float *x, float *y, int tiles) {
  RING;
#ifdef COUNT
  const u32 readers = 5;
#else
  const u32 readers = 4;
#endif
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, readers);  // @count
    fence_init();
  }
  __syncthreads();
  if (w == 4) {
    if (lane == 0)
      for (int i = 0; i < tiles; i++) {
#ifdef PARITY
        const u32 phase = i / 2 & 1;  // @parity
#else
        const u32 phase = i / 2 & 1 ^ 1;
#endif
        spin(empty + i % 2, phase);  // @parity @fill
#ifdef BYTES
        const u32 size = 1040;
#else
        const u32 size = 1024;
#endif
        expect(full + i % 2, size);  // @bytes
        copy(buf[i % 2], x + i * 256, 1024, full + i % 2);
      }
  } else
    for (int i = 0; i < tiles; i++) {
      spin(full + i % 2, i / 2 & 1);  // @read
      y[i * 128 + t] = buf[i % 2][t] + buf[i % 2][t + 128];
      __syncwarp();
#ifdef LOST
      const bool frees = i != 3 || w != 2;
#else
      const bool frees = true;
#endif
      if (lane == 0 && frees) arrive(empty + i % 2);  // @lost
    }
}
