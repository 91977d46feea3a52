struct alignas(64) Map { char of[128]; };

/// A box of the map comes into this CTA, and completes on a barrier of the pair.
FN void copy_pair(u32 to, const Map *map, u32 b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%2, %2}], [%3];"
               ::"r"(to), "l"(map), "r"(0), "r"(b) : "memory");
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) f(const __grid_constant__ Map x, const __grid_constant__ Map z, float *y, int n) {
  __shared__ alignas(128) char a[4096], b[2048];
  __shared__ alignas(8) u64 full, empty, done; __shared__ u32 place;
  int w = threadIdx.x / 32, lane = threadIdx.x % 32;
  cluster_sync();  // both are there
  if (w == 2) alloc_pair(&place, 128);
  if (threadIdx.x == 0) {
    init(&full, 2), init(&empty, 1), init(&done, 1);
    fence_init();
  }
  before(); cluster_sync(); after();  // start
  u32 tmem = place;
  if (w == 0 && lane == 0)
    for (int i = 0; i < n; i++) {
      wait(&empty, i % 2 ^ 1);
      u32 leader = there(&full, 0);
      asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], 6144;" ::"r"(leader) : "memory");
      copy_pair(there(a, rank()), &x, leader);
      copy_pair(there(b, rank()), &z, leader);
    }
  else if (w == 1 && lane == 0 && rank() == 0) {
    for (int i = 0; i < n; i++) {
      wait(&full, i % 2);
      after();
      mma_pair(tmem, matrix(a), matrix(b), kind_f16(256, 128), i > 0);
      commit_pair(&empty, 3);
    }
    commit_pair(&done, 3);
  }
  __syncwarp();
  wait(&done, 0);
  if (threadIdx.x == 0) wait(&empty, n - 1 & 1);  // last
  after();
  u32 v[4];
  load4(tmem + (w << 21), v);
  loaded();
  y[blockIdx.x * 128 + threadIdx.x] = __uint_as_float(v[0]);
  before(); cluster_sync(); after();  // end
  if (w == 2) dealloc_pair(tmem, 128);
}
