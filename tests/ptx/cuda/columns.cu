extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ alignas(128) char b[2048];
  __shared__ alignas(8) u64 full, done; __shared__ u32 place;
  int w = threadIdx.x / 32;
  if (w == 0) alloc(&place, 128);
  if (threadIdx.x == 0) {
    init(&full, 1), init(&done, 1);
    fence_init();
    expect(&full, 2048);
    copy(b, x, 2048, &full);
  }
  before(); __syncthreads(); after();
  u32 tmem = place, mine = tmem + (w << 21);
  for (int i = 0; i < n; i++) {
    store4(mine + 64, threadIdx.x + i);  // a
    store4(mine + 68, threadIdx.x);
    stored();  // a
    before(); __syncthreads(); after();  // ready
    if (threadIdx.x == 0) {
      if (i == 0) wait(&full, 0);
      mma_of_columns(tmem, tmem + 64, matrix(b), kind_f16(128, 64), i > 0);
      commit(&done);
    }
    __syncwarp();
    wait(&done, i % 2);
    after();
  }
  u32 v[4];
  load4(mine, v);
  loaded();
  y[threadIdx.x] = __uint_as_float(v[0]);
  before(); __syncthreads(); after();  // end
  if (w == 0) dealloc(tmem, 128);
}
