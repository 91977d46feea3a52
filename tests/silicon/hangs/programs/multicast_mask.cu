// A copy to all CTAs of the cluster leaves out CTA 3.
#include "hang.cuh"
KERNEL __cluster_dims__(4) __launch_bounds__(64) multicast_mask(const float *x, float *y) {
  __shared__ alignas(128) float buf[256]; __shared__ alignas(8) u64 full;
  const int t = threadIdx.x;
  if (t == 0) {
    init(&full, 1);
    fence_init();
    expect(&full, 1024);
  }
  cluster_sync();
#ifdef FIXED
  const unsigned short mask = 15;
#else
  const unsigned short mask = 7;
#endif
  if (t == 0 && rank() == 0) multicast(buf, x, 1024, &full, mask);  // @culprit
  wait(&full, 0);  // @read
  y[blockIdx.x * 64 + t] = buf[t];
  cluster_sync();  // @cluster
}
