// Copies without end: a dump finds some of them under way.
#include "hang.cuh"
KERNEL __launch_bounds__(32) in_flight(const float *x, int *stop) {
  extern __shared__ __align__(128) float room[];
  __shared__ alignas(8) u64 full;
  if (threadIdx.x == 0) {
    init(&full, 1);
    fence_init();
    for (u32 i = 0; load(stop) == 0; i++) {
      expect(&full, 131072);
      for (int part = 0; part < 4; part++)
        copy(room + part * 8192, x + ((i * 7 + blockIdx.x) % 64 * 4 + part) * 8192, 32768, &full);
      spin(&full, i & 1);
    }
  }
}
