// Small kernels of which each hangs in its own way: tests/autopsy/hanging_kernels.py reads them.
// A line with //// begins one: its name, and its launch where it is not 1 CTA of 128 threads with n = 7.
#define TRY(instruction, ...) \
  u32 done; asm volatile("{.reg .pred p; mbarrier." instruction ".shared::cta.b64 p, [%1], %2;" \
                         "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(b)), __VA_ARGS__ : "memory"); \
  return done
FN bool look(u64 *b, u32 parity) { TRY("try_wait.parity", "r"(parity)); }
FN bool look_at_token(u64 *b, u64 token) { TRY("try_wait", "l"(token)); }
FN bool test(u64 *b, u32 parity) { TRY("test_wait.parity", "r"(parity)); }
FN u64 token_of(u64 *b) {
  u64 t; asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : "r"(at(b)) : "memory");
  return t;
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

#define KERNEL(threads, ...) \
  extern "C" __global__ void __launch_bounds__(threads) __VA_ARGS__ f(const u32 *x, u32 *y, int n)
#define SHARED \
  __shared__ alignas(128) u32 buf[1024]; __shared__ u64 bar[8]; \
  const int t = threadIdx.x, warp = t / 32, lane = t % 32
#define BARRIERS(arrivals) \
  SHARED; \
  if (t == 0) { for (int i = 0; i < 8; ++i) init(bar + i, arrivals); fence_init(); } \
  __syncthreads()
// The warp after the readers fills stages, which they free by so many arrivals. Right are as many
// as readers, 1024 bytes, and the parity i / stages & 1 of the readers' wait.
template <int stages, int readers, class Parity>
FN void ring(u32 *buf, u64 *bar, const u32 *x, u32 *y, int n, u32 arrivals, u32 bytes, Parity parity) {
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  u64 *full = bar, *empty = bar + stages;
  if (t == 0) {
    for (int i = 0; i < stages; ++i) { init(full + i, 1); init(empty + i, arrivals); }
    fence_init();
  }
  __syncthreads();
  if (warp == readers) {
    if (lane == 0) for (int i = 0; i < n; ++i) {
      const int s = i % stages;
      wait(empty + s, (i / stages & 1) ^ 1);
      expect(full + s, bytes);
      copy(buf + s * 256, x + i * 256, 1024, full + s);
    }
  } else {
    u32 sum = 0;
    for (int i = 0; i < n; ++i) {
      const int s = i % stages;
      wait(full + s, parity(i));
      sum += buf[s * 256 + t];
      __syncwarp();
      if (lane == 0) arrive(empty + s);
    }
    y[t] = sum;
  }
}

//// mbarrier, a phase without arrivals
KERNEL(128) {
  BARRIERS(128);
  arrive(bar);
  wait(bar, 0);
  wait(bar, 1);
  y[t] = 1;
}

//// mbarrier, count too high
KERNEL(128) {
  BARRIERS(129);
  arrive(bar + 1);
  wait(bar + 1, 0);
  y[t] = 1;
}

//// mbarrier, bytes missing
KERNEL(128) {
  BARRIERS(1);
  if (t == 0) { expect(bar + 2, 2048); copy(buf, x, 1024, bar + 2); }
  wait(bar + 2, 0);
  y[t] = buf[t];
}

//// mbarrier, a warp has returned
KERNEL(128) {
  BARRIERS(4);
  if (warp == 2 && n > 3) return;
  if (lane == 0) arrive(bar);
  wait(bar, 0);
  y[t] = 1;
}

//// mbarrier, no expect
KERNEL(128) {
  BARRIERS(1);
  if (t == 0 && n == 0) { expect(bar, 1024); copy(buf, x, 1024, bar); }
  if (warp == 1) { wait(bar, 0); y[t] = buf[t]; }
  __syncthreads();
  y[t] = 2;
}

//// mbarrier, token
KERNEL(128) {
  BARRIERS(129);
  u64 token = token_of(bar + 3);
  while (!look_at_token(bar + 3, token)) {}
  y[t] = 1;
}

//// mbarrier, test_wait
KERNEL(128) {
  BARRIERS(5);
  if (lane == 0) arrive(bar + 4);
  while (!test(bar + 4, 0)) {}
  y[t] = 1;
}

//// mbarrier, counted arrivals
KERNEL(128) {
  BARRIERS(64);
  if (warp == 0) { if (lane == 0) arrive_n(bar, 48); } else wait(bar, 0);
  y[t] = 1;
}

//// mbarrier, tries that are bounded
KERNEL(128) {
  BARRIERS(2);
  if (t == 0) arrive(bar);
  bool done = false;
  while (!done) for (int i = 0; i < 4 && !done; ++i) done = look(bar, 0);
  y[t] = 1;
}

//// mbarrier, sleeps between tries
KERNEL(128) {
  BARRIERS(2);
  if (t == 0) arrive(bar);
  while (!look(bar, 0)) __nanosleep(64);
  y[t] = 1;
}

//// mbarrier, sleeps in a loop of its own: threads=64
KERNEL(64) {
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
KERNEL(128) {
  BARRIERS(1);
  if (warp == 0) { wait(bar, 0); if (lane == 0) arrive(bar + 1); }
  if (warp == 1) { wait(bar + 1, 0); if (lane == 0) arrive(bar); }
  __syncthreads();
  y[t] = 1;
}

//// mbarrier, one lane waits
KERNEL(128) {
  BARRIERS(2);
  if (t == 0) arrive(bar);
  if (lane == 0) wait(bar, 0);
  __syncwarp();
  y[t] = 1;
}

//// ring of 2, parity of the iteration
KERNEL(128) {
  SHARED;
  ring<2, 3>(buf, bar, x, y, n, 3, 1024, [](int i) { return i & 1; });
}

//// ring of 3, parity of the iteration
KERNEL(128) {
  SHARED;
  ring<3, 3>(buf, bar, x, y, n, 3, 1024, [](int i) { return i & 1; });
}

//// ring of 4, parity of the stage
KERNEL(128) {
  SHARED;
  ring<4, 3>(buf, bar, x, y, n, 3, 1024, [](int i) { return i % 4 & 1; });
}

//// ring of 2, empty counts a warp too many
KERNEL(128) {
  SHARED;
  ring<2, 3>(buf, bar, x, y, n, 4, 1024, [](int i) { return i / 2 & 1; });
}

//// ring of 2, bytes
KERNEL(128) {
  SHARED;
  ring<2, 3>(buf, bar, x, y, n, 3, 1040, [](int i) { return i / 2 & 1; });
}

//// ring of 4, right but for the bytes
KERNEL(128) {
  SHARED;
  ring<4, 3>(buf, bar, x, y, n, 3, 2048, [](int i) { return i / 4 & 1; });
}

//// ring of 3, seven consumers: threads=256
KERNEL(256) {
  SHARED;
  ring<3, 7>(buf, bar, x, y, n, 7, 1024, [](int i) { return (i + 1) / 3 & 1; });
}

//// named barrier, count too high
KERNEL(128) {
  SHARED;
  if (warp < 2) sync_of<1, 96>();
  y[t] = 1;
}

//// named barrier, register form: n=3
KERNEL(128) {
  SHARED;
  if (warp < 2) sync(n, 32 * n);
  y[t] = 1;
}

//// named barriers, crossed
KERNEL(128) {
  SHARED;
  if (warp == 0) { sync_of<1, 64>(); sync_of<2, 64>(); }
  if (warp == 1) { sync_of<2, 64>(); sync_of<1, 64>(); }
  y[t] = 1;
}

//// named barrier, no arrive
KERNEL(128) {
  SHARED;
  if (warp == 0) { if (n == 0) arrive_of<3, 128>(); } else sync_of<3, 128>();
  y[t] = 1;
}

//// CTA barrier in a branch
KERNEL(128) {
  SHARED;
  if (warp < 3) __syncthreads(); else { while (load_acquire(y) == 0) {} }
  y[t + 32] = 1;
}

//// named and CTA barrier
KERNEL(128) {
  SHARED;
  if (warp == 3) __syncthreads(); else sync_of<1, 128>();
  y[t + 32] = 1;
}

//// barrier.red
KERNEL(128) {
  SHARED;
  if (warp == 0) { while (load_acquire(y) != 5) {} }
  y[t + 32] = __syncthreads_count(t & 1);
}

//// cluster barrier, a CTA does not come: ctas=2 cluster=2
KERNEL(128, __cluster_dims__(2, 1, 1)) {
  SHARED;
  if (rank() == 0) { cluster_arrive(); cluster_wait(); }
  else { while (load_acquire(y) == 0) {} cluster_arrive(); cluster_wait(); }
  y[t + 32] = 1;
}

//// cluster, remote arrival missing: ctas=2 cluster=2
KERNEL(128, __cluster_dims__(2, 1, 1)) {
  BARRIERS(2);
  cluster_sync();
  if (t == 0) { arrive(bar); if (rank() == 0) arrive_at(bar, 1); }
  wait(bar, 0);
  cluster_sync();
  y[t] = 1;
}

//// cluster, wait for a multicast that is half: ctas=4 cluster=2
KERNEL(128, __cluster_dims__(2, 1, 1)) {
  BARRIERS(1);
  cluster_sync();
  if (t == 0) { expect(bar, 1024); multicast(buf + 128 * rank(), x, 512, bar, rank() ? 1 : 3); }
  wait(bar, 0);
  cluster_sync();
  y[t] = buf[t];
}

//// spin on a global flag: ctas=2 cooperative=1
KERNEL(128) {
  SHARED;
  if (blockIdx.x == 0) { if (t == 0) while (load_acquire(y + 1) != 2) {} }
  else if (t == 0) store_release(y + 1, 1);
  __syncthreads();
  y[t + 32] = 1;
}

//// spin on a shared flag
KERNEL(128) {
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
KERNEL(128) {
  SHARED;
  __syncthreads();
  if (t == 0) { atomicAdd(y + 3, 1); while (load_acquire(y + 3) < 4) {} }
  __syncthreads();
  y[t + 32] = 1;
}

//// cp.async, arrival missing
KERNEL(128) {
  BARRIERS(128);
  cp_async(buf + 4 * t, x + 4 * t);
  if (warp != 1) cp_async_arrive(bar);
  wait(bar, 0);
  y[t] = buf[t];
}

//// lanes apart at __syncwarp
KERNEL(128) {
  BARRIERS(1);
  if (warp == 0) { if (lane < 16) wait(bar, 0); else __syncwarp(0xffffffff); }
  y[t] = 1;
}

//// setmaxnreg: threads=256
extern "C" __global__ void __launch_bounds__(256, 1) f(const u32 *x, u32 *y, int n) {
  SHARED;
  if (warp < 4) { asm volatile("setmaxnreg.dec.sync.aligned.u32 120;"); }
  else { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
  y[t] = 1;
}

//// mbarrier, an answer that is dropped
KERNEL(128) {
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
KERNEL(128) {
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
KERNEL(64, __cluster_dims__(2, 1, 1)) {
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
KERNEL(160) {
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
