// CTA 0 counts an arrival of each CTA of the cluster; CTA 1 arrives at its own barrier.
#include "hang.cuh"
KERNEL __cluster_dims__(2) __launch_bounds__(64) remote(int *y) {
  __shared__ alignas(8) u64 ready;
  if (threadIdx.x == 0) {
    init(&ready, 2);
    fence_init();
  }
  cluster_sync();
#ifdef FIXED
  const u32 where = 0;
#else
  const u32 where = rank();
#endif
  if (threadIdx.x == 32) arrive_at(&ready, where);  // @culprit
  if (rank() == 0 && threadIdx.x < 32) wait(&ready, 0);  // @wait
  y[blockIdx.x * 64 + threadIdx.x] = 1;
  cluster_sync();  // @cluster
}
