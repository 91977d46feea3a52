FN void sync4() { asm volatile("bar.sync 1, 128;" ::: "memory"); }
FN void proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ alignas(128) char a[2][4096], b[2][2048]; __shared__ alignas(128) float out[2][128 * 4];
  __shared__ alignas(8) u64 full[2], empty[2], accf[2], acce[2]; __shared__ u32 place;
  int w = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (w == 1) alloc(&place, 128);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, 1), init(accf + i, 1), init(acce + i, 128);
    fence_init();
  }
  before(); __syncthreads(); after();
  u32 tmem = place;
  if (w == 0 && lane == 0) {
    for (int i = 0; i < 2 * n; i++) {
      wait(empty + i % 2, i / 2 % 2 ^ 1);
      expect(full + i % 2, 6144);
      copy(a[i % 2], x, 4096, full + i % 2);
      copy(b[i % 2], x + 1024, 2048, full + i % 2);
    }
    for (int i = 2 * n; i < 2 * n + 2; i++) wait(empty + i % 2, i / 2 % 2 ^ 1);  // drain
  } else if (w == 1 && lane == 0) {
    for (int t = 0; t < n; t++) {
      wait(acce + t % 2, t / 2 % 2 ^ 1);  // free
      after();  // free
      for (int k = 0; k < 2; k++) {
        int i = 2 * t + k;
        wait(full + i % 2, i / 2 % 2);
        mma(tmem + t % 2 * 64, matrix(a[i % 2]), matrix(b[i % 2]), kind_f16(128, 64), k > 0);
        commit(empty + i % 2);  // stage
      }
      commit(accf + t % 2);  // ready
    }
  } else if (w >= 2) {
    int q = w % 4, row = q * 32 + lane;
    for (int t = 0; t < n; t++) {
      wait(accf + t % 2, t / 2 % 2);  // tile
      after();  // tile
      u32 v[4];
      load4(tmem + t % 2 * 64 + (q << 21), v);
      loaded();  // ld
      before();  // ld
      arrive(acce + t % 2);  // give
      if (threadIdx.x == 64) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");  // slot
      sync4();  // slot
      for (int c = 0; c < 4; c++) out[t % 2][row * 4 + c] = __uint_as_float(v[c]);
      proxy();  // out
      sync4();  // out
      if (threadIdx.x == 64) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 2048;" ::"l"(y + t * 512), "r"(at(out[t % 2])) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
      }
    }
    if (threadIdx.x == 64) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");  // last
  }
  __syncwarp();
  before(); __syncthreads(); after();  // end
  if (w == 1) dealloc(tmem, 128);
}
