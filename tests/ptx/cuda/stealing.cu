extern "C" __global__ void f(const float *x, float *y, int n) {
  __shared__ alignas(16) u64 answer[2]; __shared__ alignas(8) u64 full;
  u32 tile = blockIdx.x, round = 0;
  if (threadIdx.x == 0) {
    init(&full, 1);
    fence_init();
  }
  __syncthreads();
  while (true) {
    if (threadIdx.x == 0) {
      expect(&full, 16);
      asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
                   ::"r"(at(answer)), "r"(at(&full)) : "memory");
    }
    y[tile * 128 + threadIdx.x] = x[tile * 128 + threadIdx.x];
    wait(&full, round & 1);
    u32 more, next = 0;
    asm volatile("{.reg .pred p; .reg .b128 r; mov.b128 r, {%2, %3};\n"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;\n"
                 "selp.u32 %0, 1, 0, p;\n"
                 "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %1, r;}"
                 : "=r"(more), "+r"(next) : "l"(answer[0]), "l"(answer[1]));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // proxy
    __syncthreads();  // read
    if (!more) break;
    tile = next, round++;
  }
}
