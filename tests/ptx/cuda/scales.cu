FN u64 rows(const void *p) { return (u64)(at(p) >> 4) & 0x3fff | 8ull << 16 | 8ull << 32 | 1ull << 46; }
FN void scales(u32 tmem, const void *p) {
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(tmem), "l"(rows(p)) : "memory");
}
extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ alignas(128) char a[4096], b[2048], sa[512], sb[512];
  __shared__ alignas(8) u64 full, done; __shared__ u32 place;
  int w = threadIdx.x / 32;
  if (w == 0) alloc(&place, 128);
  if (threadIdx.x == 0) {
    init(&full, 1), init(&done, 1);
    fence_init();
  }
  before(); __syncthreads(); after();
  u32 tmem = place;
  if (threadIdx.x == 0)
    for (int i = 0; i < n; i++) {
      expect(&full, 4096 + 2048 + 1024);
      copy(a, x, 4096, &full), copy(b, x, 2048, &full);
      copy(sa, x, 512, &full), copy(sb, x, 512, &full);
      wait(&full, i & 1);  // loads
      scales(tmem + 64, sa), scales(tmem + 68, sb);  // scales
      asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0;\n"
                   "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], %1, %2, %3, [%5], [%6], p;}"
                   ::"r"(tmem), "l"(matrix(a)), "l"(matrix(b)), "r"(8 << 17 | 1 << 23 | 8 << 24), "r"((u32)(i > 0)),
                   "r"(tmem + 64), "r"(tmem + 68) : "memory");
      commit(&done);
      wait(&done, i & 1);  // product
      after();
    }
  before(); __syncthreads(); after();
  u32 v[4];
  load4(tmem + (w << 21), v);
  loaded();
  y[threadIdx.x] = __uint_as_float(v[0]);
  before(); __syncthreads(); after();  // end
  if (w == 0) dealloc(tmem, 128);
}
