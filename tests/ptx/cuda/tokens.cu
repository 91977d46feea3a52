
FN u32 look(u64 *b, u32 parity) {
  u32 done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
  return done;
}
FN void wait_unless(u32 token, u64 *b, u32 parity) {
  if (token) return;
  u32 done;
  do asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                  : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
  while (!done);
}
extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ alignas(128) float buf[3][128]; __shared__ alignas(8) u64 full[3], empty[3];
  int t = threadIdx.x, s = 0;
  if (t == 0) {
    for (int i = 0; i < 3; i++) init(full + i, 1), init(empty + i, 96);
    fence_init();
  }
  __syncthreads();
  if (t >= 96) {
    u32 parity = 1, token = look(empty, 1);
    if (t == 96)
      for (int i = 0; i < n; i++) {
        wait_unless(token, empty + s, parity);
        expect(full + s, 512);
        copy(buf[s], x + i * 128, 512, full + s);
        if (++s == 3) s = 0, parity ^= 1;
        if (i + 1 < n) token = look(empty + s, parity);
      }
  } else {
    float sum = 0; u32 parity = 0, token = look(full, 0);
    for (int i = 0; i < n; i++) {
      wait_unless(token, full + s, parity);
      sum += buf[s][t];
      arrive(empty + s);
      if (++s == 3) s = 0, parity ^= 1;
      if (i + 1 < n) token = look(full + s, parity);  // next
    }
    y[t] = sum;
  }
}
