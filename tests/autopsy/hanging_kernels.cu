// Small kernels of which each hangs in its own way: tests/autopsy/hanging_kernels.py reads them.
// A line with //// begins one: its name, and its launch where it is not 1 CTA of 128 threads with n = 7.
FN bool look(u64 *b, u32 parity) {
  u32 done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
               "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
  return done;
}
FN u64 token_of(u64 *b) {
  u64 t; asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : "r"(at(b)) : "memory");
  return t;
}
FN void wait_token(u64 *b, u64 token) {
  u32 done;
  do asm volatile("{.reg .pred p; mbarrier.try_wait.shared::cta.b64 p, [%1], %2;"
                  "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(b)), "l"(token) : "memory");
  while (!done);
}
FN void test_wait(u64 *b, u32 parity) {
  u32 done;
  do asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
                  "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
  while (!done);
}
FN void arrive_n(u64 *b, u32 n) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
FN void sync(int id, int n) { asm volatile("barrier.sync.aligned %0, %1;" ::"r"(id), "r"(n) : "memory"); }
template <int id, int n> FN void sync_of() { asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(n) : "memory"); }
template <int id, int n> FN void arrive_of() { asm volatile("bar.arrive %0, %1;" ::"n"(id), "n"(n) : "memory"); }
FN u32 load_acquire(const u32 *p) {
  u32 v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v;
}
FN void store_release(u32 *p, u32 v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
FN u32 load_shared(const u32 *p) {
  u32 v; asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"(at(p)) : "memory"); return v;
}
FN void store_shared(u32 *p, u32 v) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(at(p)), "r"(v) : "memory");
}
FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
FN void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

//// mbarrier, a phase without arrivals
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 128); fence_init(); }
  __syncthreads();
  arrive(bar);
  wait(bar, 0);
  wait(bar, 1);
  y[t] = 1;
}

//// mbarrier, count too high
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 129); fence_init(); }
  __syncthreads();
  arrive(bar + 1);
  wait(bar + 1, 0);
  y[t] = 1;
}

//// mbarrier, bytes missing
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 1); fence_init(); }
  __syncthreads();
  if (t == 0) { expect(bar + 2, 2048); copy(buf, x, 1024, bar + 2); }
  wait(bar + 2, 0);
  y[t] = buf[t];
}

//// mbarrier, a warp has returned
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 4); fence_init(); }
  __syncthreads();
  if (warp == 2 && n > 3) return;
  if (lane == 0) arrive(bar);
  wait(bar, 0);
  y[t] = 1;
}

//// mbarrier, no expect
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 1); fence_init(); }
  __syncthreads();
  if (t == 0 && n == 0) { expect(bar, 1024); copy(buf, x, 1024, bar); }
  if (warp == 1) { wait(bar, 0); y[t] = buf[t]; }
  __syncthreads();
  y[t] = 2;
}

//// mbarrier, token
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 129); fence_init(); }
  __syncthreads();
  u64 token = token_of(bar + 3);
  wait_token(bar + 3, token);
  y[t] = 1;
}

//// mbarrier, test_wait
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 5); fence_init(); }
  __syncthreads();
  if (lane == 0) arrive(bar + 4);
  test_wait(bar + 4, 0);
  y[t] = 1;
}

//// mbarrier, counted arrivals
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 64); fence_init(); }
  __syncthreads();
  if (warp == 0) { if (lane == 0) arrive_n(bar, 48); } else wait(bar, 0);
  y[t] = 1;
}

//// mbarrier, tries that are bounded
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 2); fence_init(); }
  __syncthreads();
  if (t == 0) arrive(bar);
  bool done = false;
  while (!done) for (int i = 0; i < 4 && !done; ++i) done = look(bar, 0);
  y[t] = 1;
}

//// mbarrier, sleeps between tries
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 2); fence_init(); }
  __syncthreads();
  if (t == 0) arrive(bar);
  while (!look(bar, 0)) __nanosleep(64);
  y[t] = 1;
}

//// mbarrier, sleeps in a loop of its own: threads=64
extern "C" __global__ void __launch_bounds__(64) f(const u32 *x, u32 *y, int n) {
  __shared__ u64 bar, other;
  const int t = threadIdx.x;
  if (t == 0) { init(&bar, 2); init(&other, 3); fence_init(); }
  __syncthreads();
  if (t < 32) {
    u32 done = 0;
    while (!done) { done = look(&bar, 0); if (!done) __nanosleep(64); }
  } else {
    if (t == 32) arrive(&bar);
    asm volatile("{.reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;}"
                 ::"r"(at(&other)), "r"(0) : "memory");
  }
  y[t] = 1;
}

//// mbarrier, one waits for the other
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 1); fence_init(); }
  __syncthreads();
  if (warp == 0) { wait(bar, 0); if (lane == 0) arrive(bar + 1); }
  if (warp == 1) { wait(bar + 1, 0); if (lane == 0) arrive(bar); }
  __syncthreads();
  y[t] = 1;
}

//// mbarrier, one lane waits
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 2); fence_init(); }
  __syncthreads();
  if (t == 0) arrive(bar);
  if (lane == 0) wait(bar, 0);
  __syncwarp();
  y[t] = 1;
}

//// ring of 2, parity of the iteration
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  u64 *full = bar, *empty = bar + 2;
  if (t == 0) {
    for (int i = 0; i < 2; ++i) { init(full + i, 1); init(empty + i, 3); }
    fence_init();
  }
  __syncthreads();
  if (warp == 3) {
    if (lane == 0) for (int i = 0; i < n; ++i) {
      const int s = i % 2;
      wait(empty + s, (i / 2 & 1) ^ 1);
      expect(full + s, 1024);
      copy(buf + s * 256, x + i * 256, 1024, full + s);
    }
  } else {
    u32 sum = 0;
    for (int i = 0; i < n; ++i) {
      const int s = i % 2;
      wait(full + s, i & 1);
      sum += buf[s * 256 + t];
      __syncwarp();
      if (lane == 0) arrive(empty + s);
    }
    y[t] = sum;
  }
}

//// ring of 3, parity of the iteration
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  u64 *full = bar, *empty = bar + 3;
  if (t == 0) {
    for (int i = 0; i < 3; ++i) { init(full + i, 1); init(empty + i, 3); }
    fence_init();
  }
  __syncthreads();
  if (warp == 3) {
    if (lane == 0) for (int i = 0; i < n; ++i) {
      const int s = i % 3;
      wait(empty + s, (i / 3 & 1) ^ 1);
      expect(full + s, 1024);
      copy(buf + s * 256, x + i * 256, 1024, full + s);
    }
  } else {
    u32 sum = 0;
    for (int i = 0; i < n; ++i) {
      const int s = i % 3;
      wait(full + s, i & 1);
      sum += buf[s * 256 + t];
      __syncwarp();
      if (lane == 0) arrive(empty + s);
    }
    y[t] = sum;
  }
}

//// ring of 4, parity of the stage
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  u64 *full = bar, *empty = bar + 4;
  if (t == 0) {
    for (int i = 0; i < 4; ++i) { init(full + i, 1); init(empty + i, 3); }
    fence_init();
  }
  __syncthreads();
  if (warp == 3) {
    if (lane == 0) for (int i = 0; i < n; ++i) {
      const int s = i % 4;
      wait(empty + s, (i / 4 & 1) ^ 1);
      expect(full + s, 1024);
      copy(buf + s * 256, x + i * 256, 1024, full + s);
    }
  } else {
    u32 sum = 0;
    for (int i = 0; i < n; ++i) {
      const int s = i % 4;
      wait(full + s, s & 1);
      sum += buf[s * 256 + t];
      __syncwarp();
      if (lane == 0) arrive(empty + s);
    }
    y[t] = sum;
  }
}

//// ring of 2, empty counts a warp too many
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  u64 *full = bar, *empty = bar + 2;
  if (t == 0) {
    for (int i = 0; i < 2; ++i) { init(full + i, 1); init(empty + i, 4); }
    fence_init();
  }
  __syncthreads();
  if (warp == 3) {
    if (lane == 0) for (int i = 0; i < n; ++i) {
      const int s = i % 2;
      wait(empty + s, (i / 2 & 1) ^ 1);
      expect(full + s, 1024);
      copy(buf + s * 256, x + i * 256, 1024, full + s);
    }
  } else {
    u32 sum = 0;
    for (int i = 0; i < n; ++i) {
      const int s = i % 2;
      wait(full + s, i / 2 & 1);
      sum += buf[s * 256 + t];
      __syncwarp();
      if (lane == 0) arrive(empty + s);
    }
    y[t] = sum;
  }
}

//// ring of 2, bytes
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  u64 *full = bar, *empty = bar + 2;
  if (t == 0) {
    for (int i = 0; i < 2; ++i) { init(full + i, 1); init(empty + i, 3); }
    fence_init();
  }
  __syncthreads();
  if (warp == 3) {
    if (lane == 0) for (int i = 0; i < n; ++i) {
      const int s = i % 2;
      wait(empty + s, (i / 2 & 1) ^ 1);
      expect(full + s, 1040);
      copy(buf + s * 256, x + i * 256, 1024, full + s);
    }
  } else {
    u32 sum = 0;
    for (int i = 0; i < n; ++i) {
      const int s = i % 2;
      wait(full + s, i / 2 & 1);
      sum += buf[s * 256 + t];
      __syncwarp();
      if (lane == 0) arrive(empty + s);
    }
    y[t] = sum;
  }
}

//// ring of 4, right but for the bytes
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  u64 *full = bar, *empty = bar + 4;
  if (t == 0) {
    for (int i = 0; i < 4; ++i) { init(full + i, 1); init(empty + i, 3); }
    fence_init();
  }
  __syncthreads();
  if (warp == 3) {
    if (lane == 0) for (int i = 0; i < n; ++i) {
      const int s = i % 4;
      wait(empty + s, (i / 4 & 1) ^ 1);
      expect(full + s, 2048);
      copy(buf + s * 256, x + i * 256, 1024, full + s);
    }
  } else {
    u32 sum = 0;
    for (int i = 0; i < n; ++i) {
      const int s = i % 4;
      wait(full + s, i / 4 & 1);
      sum += buf[s * 256 + t];
      __syncwarp();
      if (lane == 0) arrive(empty + s);
    }
    y[t] = sum;
  }
}

//// ring of 3, seven consumers: threads=256
extern "C" __global__ void __launch_bounds__(256) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  u64 *full = bar, *empty = bar + 3;
  if (t == 0) {
    for (int i = 0; i < 3; ++i) { init(full + i, 1); init(empty + i, 7); }
    fence_init();
  }
  __syncthreads();
  if (warp == 7) {
    if (lane == 0) for (int i = 0; i < n; ++i) {
      const int s = i % 3;
      wait(empty + s, (i / 3 & 1) ^ 1);
      expect(full + s, 1024);
      copy(buf + s * 256, x + i * 256, 1024, full + s);
    }
  } else {
    u32 sum = 0;
    for (int i = 0; i < n; ++i) {
      const int s = i % 3;
      wait(full + s, (i + 1) / 3 & 1);
      sum += buf[s * 256 + t];
      __syncwarp();
      if (lane == 0) arrive(empty + s);
    }
    y[t] = sum;
  }
}

//// named barrier, count too high
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp < 2) sync_of<1, 96>();
  y[t] = 1;
}

//// named barrier, register form: n=3
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp < 2) sync(n, 32 * n);
  y[t] = 1;
}

//// named barriers, crossed
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp == 0) { sync_of<1, 64>(); sync_of<2, 64>(); }
  if (warp == 1) { sync_of<2, 64>(); sync_of<1, 64>(); }
  y[t] = 1;
}

//// named barrier, no arrive
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp == 0) { if (n == 0) arrive_of<3, 128>(); } else sync_of<3, 128>();
  y[t] = 1;
}

//// CTA barrier in a branch
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp < 3) __syncthreads(); else { while (load_acquire(y) == 0) {} }
  y[t + 32] = 1;
}

//// named and CTA barrier
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp == 3) __syncthreads(); else sync_of<1, 128>();
  y[t + 32] = 1;
}

//// barrier.red
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp == 0) { while (load_acquire(y) != 5) {} }
  y[t + 32] = __syncthreads_count(t & 1);
}

//// cluster barrier, a CTA does not come: ctas=2 cluster=2
extern "C" __global__ void __launch_bounds__(128) __cluster_dims__(2, 1, 1) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (rank() == 0) { cluster_arrive(); cluster_wait(); }
  else { while (load_acquire(y) == 0) {} cluster_arrive(); cluster_wait(); }
  y[t + 32] = 1;
}

//// cluster, remote arrival missing: ctas=2 cluster=2
extern "C" __global__ void __launch_bounds__(128) __cluster_dims__(2, 1, 1) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 2); fence_init(); }
  __syncthreads();
  cluster_sync();
  if (t == 0) { arrive(bar); if (rank() == 0) arrive_at(bar, 1); }
  wait(bar, 0);
  cluster_sync();
  y[t] = 1;
}

//// cluster, wait for a multicast that is half: ctas=4 cluster=2
extern "C" __global__ void __launch_bounds__(128) __cluster_dims__(2, 1, 1) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 1); fence_init(); }
  __syncthreads();
  cluster_sync();
  if (t == 0) { expect(bar, 1024); multicast(buf + 128 * rank(), x, 512, bar, rank() ? 1 : 3); }
  wait(bar, 0);
  cluster_sync();
  y[t] = buf[t];
}

//// spin on a global flag: ctas=2 cooperative=1
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (blockIdx.x == 0) { if (t == 0) while (load_acquire(y + 1) != 2) {} }
  else if (t == 0) store_release(y + 1, 1);
  __syncthreads();
  y[t + 32] = 1;
}

//// spin on a shared flag
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  __shared__ u32 flag;
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { flag = 0; }
  __syncthreads();
  if (t == 32) store_shared(&flag, 1);
  if (warp == 0) { while (load_shared(&flag) != 2) {} }
  __syncthreads();
  y[t] = 1;
}

//// grid barrier, one CTA too few: ctas=3 cooperative=1
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  __syncthreads();
  if (t == 0) { atomicAdd(y + 3, 1); while (load_acquire(y + 3) < 4) {} }
  __syncthreads();
  y[t + 32] = 1;
}

//// cp.async, arrival missing
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 128); fence_init(); }
  __syncthreads();
  cp_async(buf + 4 * t, x + 4 * t);
  if (warp != 1) cp_async_arrive(bar);
  wait(bar, 0);
  y[t] = buf[t];
}

//// lanes apart at __syncwarp
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, 1); fence_init(); }
  __syncthreads();
  if (warp == 0) { if (lane < 16) wait(bar, 0); else __syncwarp(0xffffffff); }
  y[t] = 1;
}

//// setmaxnreg: threads=256
extern "C" __global__ void __launch_bounds__(256, 1) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (warp < 4) { asm volatile("setmaxnreg.dec.sync.aligned.u32 120;"); }
  else { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
  y[t] = 1;
}

//// mbarrier, an answer that is dropped
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ u64 bar[8];
  const int t = threadIdx.x;
  if (t == 0) { init(bar, 128); fence_init(); }
  __syncthreads();
  arrive(bar);
  bool done = false;
  while (!done) look(bar, 0);
  y[t] = 1;
}

//// barrier of three warps, and one that waits for lanes
extern "C" __global__ void __launch_bounds__(128) f(const u32 *x, u32 *y, int n) {
  __shared__ u64 bar[8];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) { init(bar, 1); fence_init(); }
  __syncthreads();
  if (warp == 3) {
    if (lane < 8) wait(bar, 0);
    else if (lane < 16) while (load_acquire(y) == 0) {}
    __syncwarp();
  }
  sync_of<4, 128>();
  y[t + 32] = 1;
}

//// remote flag of another CTA: ctas=2 threads=64 cluster=2
extern "C" __global__ void __launch_bounds__(64) __cluster_dims__(2, 1, 1) f(const u32 *x, u32 *y, int n) {
  __shared__ u32 flag;
  __shared__ u64 bar;
  const int t = threadIdx.x;
  if (t == 0) { flag = 0; init(&bar, 1); fence_init(); }
  cluster_sync();
  if (t == 32 && rank() == 0) {
    u32 v;
    do asm volatile("ld.acquire.cluster.shared::cluster.u32 %0, [%1];" : "=r"(v) : "r"(there(&flag, 1)) : "memory");
    while (v != 3);
  }
  if (rank() == 1) wait(&bar, 0);
  cluster_sync();
  y[t] = 1;
}

//// ring whose consumers leave early: threads=160
extern "C" __global__ void __launch_bounds__(160) f(const u32 *x, u32 *y, int n) {
  __shared__ alignas(128) u32 buf[1024];
  __shared__ u64 full[4], empty[4];
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  if (t == 0) {
    for (int i = 0; i < 4; ++i) { init(full + i, 1); init(empty + i, 4); }
    fence_init();
  }
  __syncthreads();
  u32 sum = 0;
  if (warp == 4) {
    if (lane == 0) for (int i = 0; i < 2 * n; ++i) {
      wait(empty + i % 4, (i / 4 & 1) ^ 1);
      expect(full + i % 4, 1024);
      copy(buf + i % 4 * 256, x + i * 256, 1024, full + i % 4);
    }
  } else for (int i = 0; i < n - (warp == 2); ++i) {
    wait(full + i % 4, i / 4 & 1);
    sum += buf[i % 4 * 256 + t];
    __syncwarp();
    if (lane == 0) arrive(empty + i % 4);
  }
  y[t] = sum;
}
