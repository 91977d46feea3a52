// Wrappers of one PTX instruction each, as kernels have them.
#define D __device__ __forceinline__
D unsigned at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
D void cp16(void *s, const void *g) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(s)), "l"(g) : "memory"); }
D void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> D void cp_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
D unsigned cta_rank() { unsigned r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
D void cluster_sync() { asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory"); }
D void bulk_store(void *g, const void *s, unsigned n) { asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(g), "r"(at(s)), "r"(n) : "memory"); }
D void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> D void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }
D void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
D void bar_sync(unsigned id, unsigned n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
D void mb_init(unsigned long long *b, unsigned n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
D void mb_arrive(unsigned long long *b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory"); }
D void mb_wait(unsigned long long *b, unsigned parity) {
  unsigned ok;
  do asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(ok) : "r"(at(b)), "r"(parity) : "memory"); while (!ok);
}
