typedef unsigned u32; typedef unsigned long long u64;
#define FN __device__ __forceinline__
FN u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
FN void init(u64 *b, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n)); }
FN void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
FN void wait(u64 *b, u32 parity) {
  u32 done;
  do asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;"
                  "selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(at(b)), "r"(parity) : "memory");
  while (!done);
}
FN void expect(u64 *b, u32 n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
FN void arrive(u64 *b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory"); }
FN u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
FN u32 there(const void *p, u32 cta) {
  u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at(p)), "r"(cta)); return r;
}
FN void arrive_at(u64 *b, u32 cta) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there(b, cta)) : "memory");
}
FN void cluster_sync() { asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory"); }
FN void copy(void *d, const void *s, u32 n, u64 *b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(at(d)), "l"(s), "r"(n), "r"(at(b)) : "memory");
}
FN void multicast(void *d, const void *s, u32 n, u64 *b, unsigned short m) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1], %2, [%3], %4;" ::"r"(at(d)), "l"(s), "r"(n), "r"(at(b)), "h"(m) : "memory");
}
FN void cp_async(void *d, const void *s) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(d)), "l"(s) : "memory");
}
FN void cp_async_arrive(u64 *b) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(b)) : "memory");
}
