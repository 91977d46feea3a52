extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ alignas(128) char a[2][4096], b[2][2048];
  __shared__ alignas(8) u64 full[2], empty[2], done; __shared__ u32 place;
  int w = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (w == 2) alloc(&place, 64);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) init(full + i, 1), init(empty + i, 1);
    init(&done, 1);
    fence_init();
  }
  before(); __syncthreads(); after();
  u32 tmem = place;
  if (w == 0 && lane == 0) {
    for (int i = 0; i < n; i++) {
      wait(empty + i % 2, i / 2 % 2 ^ 1);
      expect(full + i % 2, 6144);
      copy(a[i % 2], x, 4096, full + i % 2);
      copy(b[i % 2], x + 1024, 2048, full + i % 2);
    }
    for (int i = n; i < n + 2; i++) wait(empty + i % 2, i / 2 % 2 ^ 1);  // drain
  } else if (w == 1 && lane == 0) {
    for (int i = 0; i < n; i++) {
      wait(full + i % 2, i / 2 % 2);
      after();
      mma(tmem, matrix(a[i % 2]), matrix(b[i % 2]), kind_f16(128, 64), i > 0);
      commit(empty + i % 2);
    }
    commit(&done);
  }
  __syncwarp();
  wait(&done, 0);
  after();
  float sum = 0;
  for (int c = 0; c < 64; c += 4) {
    u32 v[4];
    load4(tmem + (w << 21) + c, v);
    loaded();  // columns
    for (int i = 0; i < 4; i++) sum += __uint_as_float(v[i]);
  }
  y[threadIdx.x] = sum;
  before(); __syncthreads(); after();  // end
  if (w == 2) dealloc(tmem, 64);
}
