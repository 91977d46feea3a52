// CTA 1 waits for an arrival that CTA 0 makes behind the cluster barrier, and comes to that barrier only afterwards.
#include "hang.cuh"
KERNEL __cluster_dims__(2) __launch_bounds__(64) cluster_barrier(int *y) {
  __shared__ alignas(8) u64 go;
  if (threadIdx.x == 0) {
    init(&go, 1);
    fence_init();
  }
  cluster_sync();
#ifdef FIXED
  if (rank() == 0 && threadIdx.x == 0) arrive_at(&go, 1);
#endif
  if (rank() == 1) wait(&go, 0);  // @wait
  cluster_sync();  // @culprit @cluster
#ifndef FIXED
  if (rank() == 0 && threadIdx.x == 0) arrive_at(&go, 1);
#endif
  y[blockIdx.x * 64 + threadIdx.x] = rank();
  cluster_sync();
}
