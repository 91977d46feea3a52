extern "C" __global__ void __launch_bounds__(384) f(const float *x, float *y, int n) {
  __shared__ alignas(128) float buf[3][256]; __shared__ alignas(8) u64 full[3], empty[3];
  int group = threadIdx.x / 128, t = threadIdx.x % 128, s = 0;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 3; i++) init(full + i, 1), init(empty + i, 8);
    fence_init();
  }
  __syncthreads();
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    u32 parity = 1;
    if (t == 0)
      for (int i = 0; i < n; i++) {
        wait(empty + s, parity);
        expect(full + s, 1024);
        copy(buf[s], x + i * 256, 1024, full + s);
        if (++s == 3) s = 0, parity ^= 1;
      }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    u32 parity = 0; float sum = 0;
    for (int i = 0; i < n; i++) {
      wait(full + s, parity);
      sum += buf[s][t] + buf[s][255 - t];
      __syncwarp();
      if (t % 32 == 0) arrive(empty + s);
      if (++s == 3) s = 0, parity ^= 1;
    }
    y[threadIdx.x - 128] = sum;
  }
}
