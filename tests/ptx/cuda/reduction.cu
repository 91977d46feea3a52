extern "C" __global__ void __cluster_dims__(4, 1, 1) f(const float *x, float *y, int n) {
  __shared__ float part[128], all[4];
  int t = threadIdx.x;
  part[t] = x[blockIdx.x * 128 + t];
  __syncthreads();
  for (int o = 64; o > 0; o >>= 1) {
    if (t < o) part[t] += part[t + o];
    __syncthreads();
  }
  cluster_sync();  // start
  if (t < 4) asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there(&all[rank()], t)), "f"(part[0]) : "memory");
  cluster_sync();  // end
  if (t == 0) y[blockIdx.x] = all[0] + all[1] + all[2] + all[3];
}
