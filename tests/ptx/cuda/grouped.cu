struct alignas(64) Map { u64 words[16]; };
FN void publish(Map *to, const Map *from) {
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
               " [%0], [%1], 128;" ::"l"(to), "r"(at(from)) : "memory");
}
FN void acquire(const Map *m) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(m) : "memory");
}
FN void load(void *d, const Map *m, int x, int y, u64 *b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%2, %3}], [%4];" ::"r"(at(d)), "l"(m), "r"(x), "r"(y), "r"(at(b)) : "memory");
}
struct Group { const float *of; u32 rows; };
#define FIELD(field, type, ord, value) \
  asm volatile("tensormap.replace.tile." field ".shared::cta.b1024." type " [%0]" ord ", %1;" ::"r"(at(staged)), value : "memory")
extern "C" __global__ void f(const __grid_constant__ Map first, const Group *groups, Map *maps, float *y, int n) {
  __shared__ alignas(128) Map staged[1]; __shared__ alignas(128) float buf[2][8][32];
  __shared__ alignas(8) u64 full[2], empty[2];
  int w = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, 1);
    fence_init();
  }
  __syncthreads();
  if (w == 0) {
    Map *mine = maps + blockIdx.x;
    if (lane == 0) staged[0] = first;
    __syncwarp();
    for (int i = 0; i < n; i++) {
      Group group = groups[blockIdx.x + i];
      if (lane == 0) {
        FIELD("global_address", "b64", "", "l"(group.of));
        FIELD("global_dim", "b32", ", 1", "r"(group.rows));
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");  // was read
      }
      __syncwarp();  // staged
      publish(mine, staged);
      acquire(mine);
      if (lane == 0) {
        wait(empty + i % 2, i / 2 % 2 ^ 1);
        expect(full + i % 2, 1024);
        load(buf[i % 2], mine, 0, 0, full + i % 2);
      }
    }
  } else {
    float sum = 0;
    for (int i = 0; i < n; i++) {
      wait(full + i % 2, i / 2 % 2);
      for (int j = 0; j < 8; j++) sum += buf[i % 2][j][lane];
      __syncwarp();
      if (lane == 0) arrive(empty + i % 2);
    }
    y[blockIdx.x * 32 + lane] = sum;
  }
}
