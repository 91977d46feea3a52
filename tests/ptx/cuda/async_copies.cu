extern "C" __global__ void f(const float4 *x, float *y, int n) {
  __shared__ alignas(128) float4 buf[2][64]; __shared__ alignas(8) u64 full[2], empty[2];
  int t = threadIdx.x;
  if (t == 0) for (int i = 0; i < 2; i++) init(full + i, 64), init(empty + i, 64);
  __syncthreads();
  if (t < 64) {
    for (int i = 0; i < n; i++) {
      if (i > 1) wait(empty + i % 2, i / 2 % 2 ^ 1);
      cp_async(&buf[i % 2][t], x + i * 64 + t);
      cp_async_arrive(full + i % 2);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
  } else {
    float sum = 0;
    for (int i = 0; i < n; i++) {
      wait(full + i % 2, i / 2 % 2);
      sum += buf[i % 2][127 - t].x;
      arrive(empty + i % 2);
    }
    y[t - 64] = sum;
  }
}
