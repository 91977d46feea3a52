// A CTA that has ended counts as one that has come to the cluster barrier: this ends.
#include "hang.cuh"
KERNEL __cluster_dims__(2) __launch_bounds__(32) exited(int *y) {
  if (rank() == 1) return;
  asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
  y[threadIdx.x] = 1;
}
