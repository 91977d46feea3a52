// Wrappers of one PTX instruction each. What follows them begins with line 1.
typedef unsigned u32; typedef unsigned long long u64;
#define F __device__ __forceinline__
F u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
F void init(u64 *b, u32 n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
F void init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
F void arrive(u64 *b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory");
}
F void expect(u64 *b, u32 n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(at(b)), "r"(n) : "memory");
}
F void wait(u64 *b, u32 parity) {
  u32 ok;
  do asm volatile("{.reg .pred p;"
                  " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;"
                  " selp.u32 %0, 1, 0, p;}" : "=r"(ok) : "r"(at(b)), "r"(parity) : "memory");
  while (!ok);
}
F void load(void *s, const void *g, u32 n, u64 *b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
               " [%0], [%1], %2, [%3];" ::"r"(at(s)), "l"(g), "r"(n), "r"(at(b)) : "memory");
}
F void store(void *g, const void *s, u32 n) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
               ::"l"(g), "r"(at(s)), "r"(n) : "memory");
}
F void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
F void drain() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
F void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
F void bar(u32 id, u32 n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
F void arrive_at(u64 *b, u32 cta) {
  asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1;"
               " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];}"
               ::"r"(at(b)), "r"(cta) : "memory");
}
F u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
F void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#line 1
